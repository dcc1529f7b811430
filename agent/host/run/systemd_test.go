package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host/systemd"
)

// onSystemd gives a command for a unit of the real service manager; docs/testing.md says how to run these tests on a host.
func onSystemd(t *testing.T, script string) Command {
	t.Helper()
	if !systemd.Running() || os.Getuid() != 0 {
		t.Skip("needs root and systemd as the machine's service manager")
	}
	command := sh(script)
	command.RunDir = filepath.Join(t.TempDir(), "runs", "1")
	command.Unit = fmt.Sprintf("system-agent-test-%d", time.Now().UnixNano())
	t.Cleanup(func() { systemd.Units{}.Remove(command.Unit) })
	return command
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Logf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestSystemdRun(t *testing.T) {
	command := onSystemd(t, "cat; cat /proc/self/cgroup >&2; echo $SECRET; exit 3")
	command.Env = append(command.Env, "SECRET=hush-env")
	command.Stdin = []byte("hush-stdin ")
	start := time.Now()
	got, err := Exec{}.Run(t.Context(), command)
	t.Logf("took %s", time.Since(start).Round(time.Millisecond))
	if err != nil || got.ExitCode != 3 || string(got.Stdout) != "hush-stdin hush-env\n" || got.Resumed {
		t.Fatalf("got %+v, %v", got, err)
	}
	if !bytes.Contains(got.Stderr, []byte("system.slice/"+command.Unit+".service")) {
		t.Errorf("it ran in %s", got.Stderr)
	}
	if again, err := (Exec{}).Run(t.Context(), command); err != nil || again.ExitCode != 3 || !again.Resumed {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestSystemdDetachAndResume(t *testing.T) {
	dir := t.TempDir()
	command := onSystemd(t, "echo once >>"+dir+"/log; while ! [ -e "+dir+"/go ]; do sleep 0.05; done; echo end")
	command.Env = append(command.Env, "SECRET=hush-env")
	ctx, leave := context.WithCancelCause(t.Context())
	go func() {
		awaitFile(t, dir+"/log")
		leave(ErrDetach)
	}()
	if _, err := (Exec{}).Run(ctx, command); !errors.Is(err, ErrDetach) {
		t.Fatal(err)
	}
	shown := systemctl(t, "show", command.Unit+".service")
	for _, secret := range []string{"hush", "echo once", "SECRET"} {
		if strings.Contains(shown, secret) {
			t.Errorf("the unit's properties hold %q", secret)
		}
	}
	for _, want := range []string{"ActiveState=active", "KillMode=process", "Slice=system.slice", "OOMPolicy=continue",
		"CollectMode=inactive-or-failed"} {
		if !strings.Contains(shown, want+"\n") {
			t.Errorf("the unit has no %s", want)
		}
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Exec{}.Run(t.Context(), command)
	if raw, _ := os.ReadFile(dir + "/log"); err != nil || string(got.Stdout) != "end\n" || !got.Resumed || string(raw) != "once\n" {
		t.Errorf("got %+v, %v; log %q", got, err, raw)
	}
}

func TestSystemdCancel(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	command := onSystemd(t, "setsid -f sh -c 'echo $$ >>"+pids+"; exec sleep 63'; echo $$ >>"+pids+"; sleep 64")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, pids)
		time.Sleep(300 * time.Millisecond)
		cancel()
	}()
	if _, err := (Exec{}).Run(ctx, command); !errors.Is(err, context.Canceled) || errors.Is(err, ErrStillRunning) {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(pids)
	for _, pid := range strings.Fields(string(raw)) {
		assertGone(t, []byte(pid))
	}
	if state := systemctl(t, "show", "-p", "LoadState", command.Unit+".service"); !strings.Contains(state, "not-found") {
		t.Errorf("the unit is still there: %s", state)
	}
}

func TestSystemdKilledAndStopped(t *testing.T) {
	for name, test := range map[string]struct {
		ctl  []string
		want string
	}{
		"killed":      {[]string{"kill", "--signal=KILL"}, "ended without a result"},
		"main killed": {[]string{"kill", "--kill-who=main", "--signal=KILL"}, "ended without a result"},
		"stopped":     {[]string{"stop"}, "stopped from outside"},
	} {
		t.Run(name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "mark")
			command := onSystemd(t, "echo $$ >"+mark+"; sleep 60")
			go func() {
				awaitFile(t, mark)
				systemctl(t, append(test.ctl, command.Unit+".service")...)
			}()
			start := time.Now()
			if _, err := (Exec{}).Run(t.Context(), command); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			t.Logf("took %s", time.Since(start).Round(time.Millisecond))
			pid, _ := os.ReadFile(mark)
			assertGone(t, pid)
			command.Args = []string{"-c", "echo again"}
			if got, err := (Exec{}).Run(t.Context(), command); err != nil || string(got.Stdout) != "again\n" {
				t.Errorf("again: %+v, %v", got, err)
			}
		})
	}
}

func TestSystemdLeavesADaemonAlone(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	command := onSystemd(t, "sleep 30 >/dev/null 2>&1 & echo $! >"+mark)
	if _, err := (Exec{}).Run(t.Context(), command); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	raw, _ := os.ReadFile(mark)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(raw))); err != nil {
		t.Errorf("the daemon is gone: %v", err)
	}
	if failed := systemctl(t, "--failed", "--plain", "--no-legend"); strings.Contains(failed, "system-agent") {
		t.Errorf("failed units: %s", failed)
	}
}

// TestSystemdOutOfMemory shows that the program gets no protection from the killer when memory runs out. The shim asks for some, which
// not every machine grants; what it got is only printed.
func TestSystemdOutOfMemory(t *testing.T) {
	command := onSystemd(t, "cat /proc/self/oom_score_adj; sleep 0.2; cat /proc/$PPID/oom_score_adj")
	got, err := Exec{}.Run(t.Context(), command)
	if err != nil || !strings.HasPrefix(string(got.Stdout), "0\n") {
		t.Errorf("got %+v, %v", got, err)
	}
	t.Logf("program and shim: %q", got.Stdout)
}

func BenchmarkSystemdRun(b *testing.B) {
	if !systemd.Running() {
		b.Skip("needs systemd as the machine's service manager")
	}
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		command := sh("echo hello")
		command.RunDir, command.Unit = filepath.Join(dir, fmt.Sprint(i)), fmt.Sprintf("system-agent-bench-%d-%d", os.Getpid(), i)
		if _, err := (Exec{}).Run(context.Background(), command); err != nil {
			b.Fatal(err)
		}
	}
}
