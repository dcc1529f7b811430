package engine

import (
	"bytes"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// By these files an install script and the agent keep out of each other's way: the script announces a restart and waits while a plan
// is being applied; the agent begins nothing while a restart is announced. Each announces first and looks then, so that at least one of two
// that come at the same moment sees the other.
const (
	interlockActive  = "applyinator-active"
	interlockPending = "restart-pending"

	// pendingExpires is when an announced restart is no longer believed in.
	pendingExpires = 5 * time.Minute
	pendingPoll    = 5 * time.Second

	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// enterInterlock announces that a plan is being applied, or tells how long to wait because a restart is announced. That the announcement
// cannot be written is a failure of the plan, which the hub must hear of.
func (e *Engine) enterInterlock() (wait time.Duration, unannounced, err error) {
	// While a restart is announced, nothing is announced against it again and again.
	if wait, err := e.interlockWait(); err != nil || wait > 0 {
		return wait, nil, err
	}
	if err := e.takeInterlock(); err != nil {
		return 0, err, nil
	}
	wait, err = e.interlockWait()
	return wait, nil, err
}

// interlockWait tells how long to wait because a restart is announced.
func (e *Engine) interlockWait() (time.Duration, error) {
	if e.InterlockDirectory == "" {
		return 0, nil
	}
	now := time.Now().UTC()
	path := filepath.Join(e.InterlockDirectory, interlockPending)
	a, err := e.readAnnouncement(path, now)
	switch {
	case isNotExist(err):
		return 0, nil
	case err != nil:
		return 0, err
	case remaining(a.since, pendingExpires, now) <= 0 || e.isGone(a.owner):
		e.Log.Info("Announced restart of the agent did not happen, continuing", "announced", a.since)
		return 0, e.Host.Remove(path)
	case !a.dated:
		e.Log.Info("Waiting for the announced restart of the agent")
		return pendingPoll, e.Host.WriteFile(path, []byte(strings.TrimSpace(plans.FormatTime(a.since)+"\n"+a.owner)), host.Private(0o600))
	}
	return pendingPoll, nil
}

// announcement is a restart that a script has announced.
type announcement struct {
	since time.Time
	// dated is set where the file says since when; owner is who it says that the script is.
	dated bool
	owner string
}

// readAnnouncement reads what a script has written. Some only touch the file, and a clock may have been set back since: then the time of the
// file counts, or that of now.
func (e *Engine) readAnnouncement(path string, now time.Time) (announcement, error) {
	info, err := e.Host.Lstat(path)
	if err != nil {
		return announcement{}, err
	}
	raw, err := e.Host.ReadFile(path)
	if err != nil {
		return announcement{}, err
	}
	date, owner, _ := strings.Cut(string(raw), "\n")
	since, err := plans.ParseTime(date)
	if err == nil && !since.IsZero() && !since.After(now) {
		return announcement{since: since, dated: true, owner: owner}, nil
	}
	since = info.Modified.UTC()
	if since.After(now) {
		since = now
	}
	return announcement{since: since, owner: owner}, nil
}

// isGone tells whether a script that has said who it is, in the form "pid=1 start=2 boot=3", runs no more.
func (e *Engine) isGone(owner string) bool {
	said := map[string]string{}
	for _, field := range strings.Fields(owner) {
		name, value, _ := strings.Cut(field, "=")
		said[name] = value
	}
	if said["pid"] == "" || said["start"] == "" || said["boot"] == "" || strings.ContainsAny(said["pid"], "/.") {
		return false
	}
	boot, err := e.Host.ReadFile(bootIDFile)
	if err != nil {
		return false
	}
	if strings.TrimSpace(string(boot)) != said["boot"] {
		return true
	}
	stat, err := e.Host.ReadFile("/proc/" + said["pid"] + "/stat")
	if err != nil {
		return isNotExist(err)
	}
	// The name in parentheses may hold anything; the time of the start is the 20th field after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) >= 20 && fields[19] != said["start"]
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
