package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Down removes everything that the ledger names, whoever made it, and then the ledger. What cannot be removed stays in
// the ledger and is in the error. Without a ledger there is nothing to do. The caller has the Lock.
func (l *Lab) Down(ctx context.Context) error {
	if !l.Exists() {
		return os.RemoveAll(l.lockFile())
	}
	// The lab's own processes first: one of them may be making hosts.
	if err := l.endProcesses(l.thingsOf("")); err != nil {
		return fmt.Errorf("ending the processes of lab %q: %w", l.Name, err)
	}
	for _, h := range l.Hosts() {
		if err := l.removeThings(h.Name); err != nil {
			return fmt.Errorf("removing host %s: %w", h.Name, err)
		}
	}
	if err := l.removeThings(""); err != nil {
		return fmt.Errorf("removing lab %q: %w", l.Name, err)
	}
	if err := removeTree(ctx, l.Dir); err != nil {
		return fmt.Errorf("removing the folder of lab %q: %w", l.Name, err)
	}
	return os.RemoveAll(l.lockFile())
}

// Remove takes a host out of the lab, as if it had never been there.
func (h *Host) Remove() error {
	if err := h.lab.removeThings(h.Name); err != nil {
		return fmt.Errorf("removing host %s: %w", h.Name, err)
	}
	if err := os.RemoveAll(h.dir()); err != nil {
		return err
	}
	if err := h.lab.record(func(s *State) { delete(s.Hosts, h.Name) }); err != nil {
		return err
	}
	return h.lab.writeHostsFiles()
}

// Kill turns the host off as a power cut does. Of its disks that stays which was synced.
func (h *Host) Kill() error {
	if err := killAll(func() []int {
		if leader := h.leader(); leader != 0 {
			return []int{leader} // the kernel ends everything else in the host with it
		}
		return nil
	}); err != nil {
		return fmt.Errorf("killing host %s: %w", h.Name, err)
	}
	if err := h.waitOff(time.Minute); err != nil {
		return err
	}
	return h.loseUnsynced()
}

// PowerSwitch returns what cuts the power as Kill does, but of the disks at once: what Kill does first takes a tenth of a second. Programs
// of the host that have not ended by then get errors from the disks.
func (h *Host) PowerSwitch() func() error {
	leader := h.leader()
	return func() error {
		err := h.cutDisks()
		if leader != 0 {
			_ = syscall.Kill(leader, syscall.SIGKILL) // Kill reports what is wrong
		}
		return errors.Join(err, h.Kill())
	}
}

// Poweroff shuts the host down as its button does, and waits until it is off.
func (h *Host) Poweroff(ctx context.Context) error {
	if leader := h.leader(); leader != 0 {
		if _, err := run(ctx, enter(leader, "systemctl", "poweroff")...); err != nil {
			return fmt.Errorf("shutting down host %s: %w", h.Name, err)
		}
	}
	return h.waitOff(2 * time.Minute)
}

func (h *Host) waitOff(limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for h.lab.Running(h.processName()) {
		if time.Now().After(deadline) {
			return fmt.Errorf("host %s is not off after %s", h.Name, limit)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// removeThings removes the things of one host, or those of the lab itself with host "".
func (l *Lab) removeThings(host string) error {
	things := l.thingsOf(host)
	if err := l.endProcesses(things); err != nil {
		return err
	}
	slices.Reverse(things)
	var errs []error
	for _, t := range things {
		if err := l.removeThing(t); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := l.record(func(s *State) { s.Remove(t.Kind, t.Name) }); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) thingsOf(host string) []Thing {
	var out []Thing
	for _, t := range l.State().Things {
		if t.Host == host {
			out = append(out, t)
		}
	}
	return out
}

// endProcesses kills whatever runs in the things: the processes recorded or marked, the members of their control groups
// and units, and all that is inside their namespaces.
func (l *Lab) endProcesses(things []Thing) error {
	for _, t := range things {
		if t.Kind != KindUnit {
			continue
		}
		// A unit that is not loaded is stopped already.
		if out, err := run(context.Background(), "systemctl", "kill", "--signal=SIGKILL", t.Name); err != nil &&
			!strings.Contains(err.Error(), "not loaded") {
			return fmt.Errorf("stopping %s: %w %s", t.Name, err, out)
		}
	}
	return killAll(func() []int {
		var pids []int
		for _, t := range things {
			switch t.Kind {
			case KindProcess:
				if alive(t) {
					pids = append(pids, t.PID)
				}
				pids = append(pids, pidsMarked(l.marker(t.Name))...)
			case KindCgroup:
				pids = append(pids, l.groups.members(t.Name)...)
			case KindNetns:
				pids = append(pids, pidsInNetns(t.Name)...)
			}
		}
		return pids
	})
}

func (l *Lab) removeThing(t Thing) error {
	switch t.Kind {
	case KindProcess:
		return nil // ended already
	case KindUnit:
		waitUnitGone(t.Name)
		return nil
	case KindCgroup:
		return l.groups.remove(t.Name)
	case KindMount:
		return unmountBelow(t.Name)
	case KindNetns:
		return removeNetns(t.Name)
	case KindPath:
		return removeTree(context.Background(), t.Name)
	}
	return fmt.Errorf("the ledger names a %q, which this version does not know", t.Kind)
}

// waitUnitGone gives systemd a moment to notice that all processes of a unit have gone; then it removes the unit itself.
func waitUnitGone(unit string) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		out, err := run(context.Background(), "systemctl", "show", "--value", "--property=LoadState", unit)
		if err != nil || strings.TrimSpace(out) == "not-found" {
			return
		}
	}
}

func removeNetns(name string) error {
	if !netnsExists(name) {
		return nil
	}
	err := syscall.Unmount(netnsPath(name), syscall.MNT_DETACH)
	if err != nil && err != syscall.EINVAL { // EINVAL: only the file was made
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return os.Remove(netnsPath(name))
}
