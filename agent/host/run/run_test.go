package run

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func sh(script string) Command {
	return Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: time.Minute}
}

// TestRun shows among others that stderr is kept (B9), and that a program is looked up in its own PATH and gets its own environment and
// nothing of the agent's (B10, S7).
func TestRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.sh"), []byte("#!/bin/sh\necho found $0 in $PWD\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		command        Command
		exit           int
		stdout, stderr string
		err            string
	}{
		"streams apart": {command: sh("echo out; echo err >&2; exit 3"), exit: 3, stdout: "out\n", stderr: "err\n"},
		"no input":      {command: sh("cat"), exit: 0},
		"signal":        {command: sh("kill -9 $$"), exit: -1},
		"its PATH": {command: Command{Path: "run.sh", Env: []string{"PATH=/nowhere", "PATH=/usr/bin:/bin:" + dir}, Dir: dir},
			stdout: "found " + dir + "/run.sh in " + dir + "\n"},
		"relative": {command: Command{Path: "./run.sh", Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir},
			stdout: "found " + dir + "/run.sh in " + dir + "\n"},
		"only its env": {command: Command{Path: "env", Env: []string{"PATH=/usr/bin:/bin", "A=b"}}, stdout: "PATH=/usr/bin:/bin\nA=b\n"},
		"not there": {command: Command{Path: "no-such-program", Env: []string{"PATH=/usr/bin"}}, exit: -1,
			err: "no-such-program is not in the PATH /usr/bin"},
		"no command":        {command: Command{}, exit: -1, err: "no command given"},
		"not executable":    {command: Command{Path: "/etc/passwd"}, exit: -1, err: "permission denied"},
		"no such directory": {command: Command{Path: "/bin/true", Dir: "/no/such"}, exit: -1, err: "no such file"},
		"output at a cut":   {command: sh("head -c 131072 /dev/zero | tr '\\0' x"), stdout: strings.Repeat("x", 128<<10)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Exec{}.Run(t.Context(), test.command)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if got.ExitCode != test.exit || string(got.Stdout) != test.stdout || string(got.Stderr) != test.stderr {
				t.Errorf("got %d %.200q %.200q", got.ExitCode, got.Stdout, got.Stderr)
			}
		})
	}
}

// TestRunTakesALineOfAnyLength shows that B7 cannot happen: a long line is output like any other.
func TestRunTakesALineOfAnyLength(t *testing.T) {
	got, err := Exec{}.Run(t.Context(), sh("printf first; head -c 3000000 /dev/zero | tr '\\0' x; printf last"))
	if err != nil || got.ExitCode != 0 {
		t.Fatal(got.ExitCode, err)
	}
	if len(got.Stdout) > headBytes+tailBytes+100 {
		t.Errorf("kept %d bytes", len(got.Stdout))
	}
	if !bytes.HasPrefix(got.Stdout, []byte("firstxxx")) || !bytes.HasSuffix(got.Stdout, []byte("xxxlast")) {
		t.Error("beginning or end is missing")
	}
	want := strconv.Itoa(3000000 + 9 - headBytes - tailBytes)
	if !bytes.Contains(got.Stdout, []byte("\n["+want+" bytes left out]\n")) {
		t.Error("no note about what is left out")
	}
}

// TestRunDoesNotWaitForADaemon shows that B8 cannot happen: who holds the output open holds nothing up.
func TestRunDoesNotWaitForADaemon(t *testing.T) {
	t.Parallel()
	start := time.Now()
	got, err := Exec{}.Run(t.Context(), sh("sleep 300 & echo $!"))
	if err != nil || got.ExitCode != 0 {
		t.Fatal(got.ExitCode, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(got.Stdout)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %s", took)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the daemon is gone: %v", err)
	}
}

func TestRunEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"obedient":                    "sleep 60 & echo $!; wait",
		"with a session of its own":   "setsid sleep 60 & echo $!; wait",
		"with a child that tidies up": "(trap 'sleep 0.1; exit 0' TERM; while :; do sleep 0.05; done) & echo $!; wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := sh(script)
			// A busy machine may be longer about starting the program than the first timeouts allow.
			for command.Timeout = 300 * time.Millisecond; ; command.Timeout *= 4 {
				got, err := Exec{}.Run(t.Context(), command)
				if err != nil || !got.TimedOut || got.ExitCode != -1 {
					t.Fatalf("got %+v, %v", got, err)
				}
				if len(got.Stdout) > 0 || command.Timeout > time.Minute {
					assertGone(t, got.Stdout)
					return
				}
			}
		})
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, begun)
		cancel()
	}()
	got, err := Exec{}.Run(ctx, sh("sleep 60 & echo $!; echo yes >"+begun+"; wait"))
	if !errors.Is(err, context.Canceled) || got.TimedOut {
		t.Errorf("got %+v, %v", got, err)
	}
	assertGone(t, got.Stdout)
}

// TestTerminateGivesUp has a program that nothing ends, as in uninterruptible sleep: nobody waits for it without end.
func TestTerminateGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		err := terminate(math.MaxInt32, make(chan error)) // no process has this ID
		if took := time.Since(started); !errors.Is(err, ErrStillRunning) || took != 2*killGrace {
			t.Errorf("got %v after %s", err, took)
		}
	})
}

// assertGone fails if the process lives; an orphan that nobody reaps yet counts as gone.
func assertGone(t *testing.T, stdout []byte) {
	t.Helper()
	pid := strings.TrimSpace(string(stdout))
	if pid == "" {
		t.Error("no process has been started")
		return
	}
	for range 3000 { // a minute: a busy machine may be long about ending it
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %s lives on", pid)
}

func TestLookPathIsNotFoundByType(t *testing.T) {
	if _, err := lookPath(Command{Path: "x"}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
