package engine

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// By these files an install script and the agent keep out of each other's way: the script announces a restart and waits while a plan
// is being applied; the agent begins nothing while a restart is announced. Each announces first and checks then, so that at least one of
// two that come at the same moment sees the other. Scripts of other versions read and write them: names and content never change.
const (
	interlockActive  = "applyinator-active"
	interlockPending = "restart-pending"

	// pendingExpires is when an announced restart is taken for one that will not happen.
	pendingExpires = 5 * time.Minute
	pendingPoll    = 5 * time.Second

	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// enterInterlock announces that a plan is being applied, or returns how long to wait because a restart is announced. announceErr is why
// the announcement could not be written, which is a failure of the plan, for the hub to see.
func (e *Engine) enterInterlock() (wait time.Duration, announceErr, err error) {
	// While a restart is announced, nothing is announced against it again and again.
	if wait, err := e.interlockWait(); err != nil || wait > 0 {
		return wait, nil, err
	}
	if err := e.announce(); err != nil {
		return 0, err, nil
	}
	wait, err = e.interlockWait()
	return wait, nil, err
}

// interlockWait is how long to wait because a restart is announced; 0 for not at all.
func (e *Engine) interlockWait() (time.Duration, error) {
	if e.InterlockDirectory == "" {
		return 0, nil
	}
	now := time.Now().UTC()
	path := filepath.Join(e.InterlockDirectory, interlockPending)
	a, err := e.readAnnouncement(path, now)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case remaining(a.since, pendingExpires, now) <= 0 || e.hasExited(a.owner):
		e.Log.Info("Announced restart of the agent did not happen, continuing", "announced", a.since)
		return 0, e.Host.Remove(path)
	case !a.dated:
		e.Log.Info("Waiting for the announced restart of the agent")
		return pendingPoll, e.Host.WriteFile(path, []byte(strings.TrimSpace(plans.FormatTime(a.since)+"\n"+a.owner)), fs.WithMode(0o600))
	}
	return pendingPoll, nil
}

// announcement is a restart that a script has announced.
type announcement struct {
	since time.Time
	// dated is set where the file says since when.
	dated bool
	// owner identifies the process of the script, "pid=1 start=2 boot=3"; empty where the file does not.
	owner string
}

// readAnnouncement reads what a script has written. Some scripts only touch the file, and a clock may have been set back since: then the
// time of the file counts, or now.
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

// hasExited reports whether the process that an announcement identifies does not run any more. It is false for one that is not identified.
func (e *Engine) hasExited(owner string) bool {
	id := map[string]string{}
	for _, field := range strings.Fields(owner) {
		name, value, _ := strings.Cut(field, "=")
		id[name] = value
	}
	if id["pid"] == "" || id["start"] == "" || id["boot"] == "" || strings.ContainsAny(id["pid"], "/.") {
		return false
	}
	boot, err := e.Host.ReadFile(bootIDFile)
	if err != nil {
		return false
	}
	if strings.TrimSpace(string(boot)) != id["boot"] {
		return true
	}
	stat, err := e.Host.ReadFile("/proc/" + id["pid"] + "/stat")
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	// The name in parentheses may hold anything; the time of the start is the 20th field after it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) >= 20 && fields[19] != id["start"]
}

// announce writes that a plan is being applied.
func (e *Engine) announce() error {
	if e.InterlockDirectory == "" {
		return nil
	}
	path := filepath.Join(e.InterlockDirectory, interlockActive)
	return e.Host.WriteFile(path, []byte(plans.FormatTime(time.Now().UTC())), fs.WithMode(0o600))
}

// releaseInterlock removes the announcement, also one that a crash left behind.
func (e *Engine) releaseInterlock() {
	if e.InterlockDirectory == "" {
		return
	}
	e.warn("Releasing the interlock failed", e.Host.Remove(filepath.Join(e.InterlockDirectory, interlockActive)))
}
