package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// basicEnv is all that a process in the lab sees of the caller's environment: a KUBECONFIG or proxy variable of the
// user's must not lead it out of the lab.
var basicEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
}

// Command prepares a command that runs inside the hub's namespace, on the machine's own files. It sees a minimal
// environment; add to Env what it needs.
func (l *Lab) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return commandIn(ctx, l.hubNS(), argv)
}

// Command prepares a command of the machine that runs in the host's network only, as one of a user beside the host's other clients. See
// Exec for one that runs on the host.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	return commandIn(ctx, h.netns(), argv)
}

func commandIn(ctx context.Context, ns string, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netnsPath(ns), "--"}, argv...)...)
	cmd.Env = append([]string{}, basicEnv...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Start runs a background process in the hub's namespace; its output goes to <LogDir>/<name>.log. The process goes on
// when the caller ends, until Stop or Down. A process of that name that already runs is left alone.
func (l *Lab) Start(name string, env []string, argv ...string) error {
	if l.Running(name) {
		return nil
	}
	if err := l.add(Thing{Kind: KindProcess, Name: name}); err != nil {
		return err
	}
	argv = append([]string{"nsenter", "--net=" + netnsPath(l.hubNS()), "--"}, argv...)
	pid, err := l.spawn(name, append(append([]string{}, basicEnv...), env...), argv)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return l.recordPID(name, pid)
}

// spawn starts a process that outlives this one and does not hear the terminal's Ctrl-C.
func (l *Lab) spawn(name string, env, argv []string) (int, error) {
	log, err := os.OpenFile(l.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = append(slices.Clip(env), l.marker(name)), log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() { _ = cmd.Wait() }() // so that it never stays as a zombie while this process lives
	return cmd.Process.Pid, nil
}

// marker is in the environment of a background process, so that it is known as ours even if its number was not recorded.
func (l *Lab) marker(name string) string { return "DROVER_LAB_PROCESS=" + filepath.Join(l.Dir, name) }

func (l *Lab) recordPID(name string, pid int) error {
	st, err := readStat(pid)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s ended at once: %s", name, l.LastLog(name))
	}
	if err != nil {
		return err
	}
	return l.record(func(s *State) { s.SetProcess(name, pid, st.Start) })
}

// Running reports whether the background process of that name runs.
func (l *Lab) Running(name string) bool {
	t, ok := l.get(KindProcess, name)
	return ok && alive(t)
}

// PID returns the process id of a running background process, or 0.
func (l *Lab) PID(name string) int {
	if t, ok := l.get(KindProcess, name); ok && alive(t) {
		return t.PID
	}
	return 0
}

// Stop ends a background process: politely, and after the grace by force; without a grace by force at once.
func (l *Lab) Stop(name string, grace time.Duration) error {
	t, ok := l.get(KindProcess, name)
	if !ok {
		return nil
	}
	for _, s := range []struct {
		signal syscall.Signal
		grace  time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, time.Minute}} {
		if s.grace == 0 || !alive(t) {
			continue
		}
		if err := syscall.Kill(t.PID, s.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		for deadline := time.Now().Add(s.grace); alive(t) && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if alive(t) {
		return fmt.Errorf("stopping %s: process %d does not end", name, t.PID)
	}
	return l.record(func(s *State) { s.SetProcess(name, 0, 0) })
}

// LogFile is where the output of a background process, or the console of a host, goes.
func (l *Lab) LogFile(name string) string { return filepath.Join(l.LogDir(), name+".log") }

// HasLogs reports whether anything has run in the lab that may have left a log.
func (l *Lab) HasLogs() bool {
	logs, err := filepath.Glob(filepath.Join(l.LogDir(), "*.log"))
	return err == nil && len(logs) > 0
}

// LastLog returns the last line of a log, for messages.
func (l *Lab) LastLog(name string) string {
	f, err := os.Open(l.LogFile(name))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 4096 {
		_, _ = f.Seek(-4096, io.SeekEnd)
	}
	raw, _ := io.ReadAll(f)
	if line := lastLine(strings.ToValidUTF8(string(raw), "")); line != "" {
		return line
	}
	return "it wrote nothing to " + l.LogFile(name)
}
