package engine

import (
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// By these files an install script and the agent keep out of each other's way: the script announces a restart and waits while a plan
// is being applied; the agent begins nothing while a restart is announced.
const (
	interlockActive  = "applyinator-active"
	interlockPending = "restart-pending"

	// pendingExpires is when an announced restart is no longer believed in.
	pendingExpires = 5 * time.Minute
	pendingPoll    = 5 * time.Second
)

// interlockWait tells how long to wait because a restart is announced.
func (e *Engine) interlockWait() (time.Duration, error) {
	if e.InterlockDirectory == "" {
		return 0, nil
	}
	now := time.Now().UTC()
	pending := filepath.Join(e.InterlockDirectory, interlockPending)
	raw, err := e.Host.ReadFile(pending)
	switch {
	case isNotExist(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	since, err := plans.ParseTime(string(raw))
	if err != nil || since.IsZero() || since.After(now) {
		// The script only touches the file, or the clock was set back; the time is noted here.
		err := e.Host.WriteFile(pending, []byte(plans.FormatTime(now)), host.Private(0o600))
		e.Log.Info("Waiting for the announced restart of the agent")
		return pendingPoll, err
	}
	if remaining(since, pendingExpires, now) > 0 {
		return pendingPoll, nil
	}
	return 0, e.Host.Remove(pending)
}

// takeInterlock announces that a plan is being applied.
func (e *Engine) takeInterlock() error {
	if e.InterlockDirectory == "" {
		return nil
	}
	return e.Host.WriteFile(filepath.Join(e.InterlockDirectory, interlockActive), []byte(plans.FormatTime(time.Now().UTC())), host.Private(0o600))
}

// releaseInterlock takes the announcement back; also one that a crash left behind.
func (e *Engine) releaseInterlock() {
	if e.InterlockDirectory == "" {
		return
	}
	if err := e.Host.Remove(filepath.Join(e.InterlockDirectory, interlockActive)); err != nil {
		e.Log.Warn("The interlock cannot be released", "error", err)
	}
}
