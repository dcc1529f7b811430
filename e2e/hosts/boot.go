package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Boot turns the host on, if it is off, and waits until its systemd has started everything.
func (h *Host) Boot(ctx context.Context) error {
	l := h.lab
	if err := h.TurnOn(); err != nil {
		return err
	}
	began := time.Now()
	for {
		if leader := h.leader(); leader != 0 {
			out, _ := run(ctx, enter(leader, "systemctl", "is-system-running")...)
			switch strings.TrimSpace(out) {
			case "running", "degraded":
				return nil
			}
		}
		if !l.Running(h.processName()) {
			return fmt.Errorf("booting host %s: it went off again: %s", h.Name, l.LastLog(h.processName()))
		}
		if time.Since(began) > 3*time.Minute {
			return fmt.Errorf("booting host %s: its systemd is not up after three minutes; see %s", h.Name, l.LogFile(h.processName()))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TurnOn turns the host on, if it is off, and waits for nothing.
func (h *Host) TurnOn() error {
	if h.lab.Running(h.processName()) {
		return nil
	}
	if err := h.powerOn(); err != nil {
		return fmt.Errorf("turning host %s on: %w", h.Name, err)
	}
	return nil
}

func (h *Host) powerOn() error {
	l := h.lab
	m := machine{Name: h.netns(), Root: h.root(), Netns: netnsPath(h.netns()), Binds: h.binds(), V2: l.groups.Unified,
		Groups: l.groups.procsFiles(h.group())}
	if len(l.groups.Roots) > 0 {
		if err := l.add(Thing{Kind: KindCgroup, Name: h.group(), Host: h.Name}); err != nil {
			return err
		}
		if err := l.groups.make(h.group()); err != nil {
			return err
		}
	}
	if l.groups.Systemd {
		// Each boot has a unit of its own: systemd may take its time to forget the one before.
		m.Unit = fmt.Sprintf("%s-%s.service", h.group(), strconv.FormatInt(time.Now().UnixNano(), 36))
		if err := l.add(Thing{Kind: KindUnit, Name: m.Unit, Host: h.Name}); err != nil {
			return err
		}
	}
	for _, t := range []Thing{
		{Kind: KindPath, Name: filepath.Join("/run/systemd/nspawn/propagate", m.Name), Host: h.Name},
		{Kind: KindPath, Name: filepath.Join("/run/systemd/nspawn/unix-export", m.Name), Host: h.Name},
		{Kind: KindProcess, Name: h.processName(), Host: h.Name},
	} {
		if err := l.add(t); err != nil {
			return err
		}
	}
	pid, err := l.spawn(h.processName(), basicEnv, bootArgs(m))
	if err != nil {
		return err
	}
	return l.recordPID(h.processName(), pid)
}

// Up reports whether the host is on.
func (h *Host) Up() bool { return h.lab.Running(h.processName()) && h.leader() != 0 }

// leader is the process that is number 1 inside the host, or 0 until that is systemd. It changes when the host reboots.
func (h *Host) leader() int {
	for _, pid := range pidsInNetns(h.netns()) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && isLeader(string(status)) {
			return pid
		}
	}
	return 0
}

// isLeader tells from /proc/<pid>/status whether a process is systemd, number 1 one level below us.
func isLeader(status string) bool {
	name, first := false, false
	for line := range strings.Lines(status) {
		f := strings.Fields(line)
		name = name || len(f) == 2 && f[0] == "Name:" && f[1] == "systemd"
		first = first || len(f) == 3 && f[0] == "NSpid:" && f[2] == "1"
	}
	return name && first
}
