package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/host/systemd"
)

// TestMain lets the test's binary be the shim, as the agent's binary is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == ShimCommand {
		if err := Shim(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("RUN_TEST_UPGRADED") != "" {
		os.Exit(upgradedHelper())
	}
	os.Exit(m.Run())
}

// fakeUnits stands for the service manager: it starts the shim in a session of its own and waits until it is ready.
type fakeUnits struct {
	t       *testing.T
	started int
	argv    []string
	shim    atomic.Pointer[os.Process]
	refuse  error
	down    bool
	removed int
}

func (d *fakeUnits) Start(ctx context.Context, _ string, argv []string) error {
	if d.refuse != nil {
		return d.refuse
	}
	d.started++
	d.argv = argv
	ready := filepath.Join(d.t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: ready, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"NOTIFY_SOCKET=" + ready}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.shim.Store(cmd.Process)
	failed := make(chan struct{})
	go func() {
		if cmd.Wait() != nil {
			close(failed)
			conn.Close()
		}
	}()
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		<-failed
		return errors.New("the shim ended")
	}
	return ctx.Err()
}

func (d *fakeUnits) Remove(string) {
	d.removed++
	if shim := d.shim.Load(); shim != nil {
		for _, p := range append(descendants(shim.Pid), process{pid: shim.Pid}) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// process is the shim. What it runs may be seen before start has noted the shim itself.
func (d *fakeUnits) process() *os.Process {
	for range 6000 {
		if shim := d.shim.Load(); shim != nil {
			return shim
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic("no shim was started")
}

func (d *fakeUnits) ShuttingDown() bool { return d.down }

func inUnit(t *testing.T, script string) (Exec, *fakeUnits, Command) {
	t.Helper()
	units := &fakeUnits{t: t}
	t.Cleanup(func() { units.Remove("") })
	command := sh(script)
	command.RunDir, command.Unit = filepath.Join(t.TempDir(), "runs", "1"), "system-agent-test"
	return Exec{units: units}, units, command
}

func TestShim(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Command)
		script string
		want   Result
		err    string
	}{
		"streams apart": {script: "echo out; echo err >&2; exit 3",
			want: Result{ExitCode: 3, Stdout: []byte("out\n"), Stderr: []byte("err\n")}}, // B9
		"signal":   {script: "kill -9 $$", want: Result{ExitCode: -1}},
		"no input": {script: "cat"},
		"input": {script: "cat", change: func(c *Command) { c.Stdin = []byte("secret") },
			want: Result{Stdout: []byte("secret")}},
		"only its env": {script: "env | grep -v '^_=\\|^PWD=\\|^SHLVL='", want: Result{Stdout: []byte("PATH=/usr/bin:/bin\n")}},
		"timeout": {script: "echo begun; sleep 60", change: func(c *Command) { c.Timeout = 3 * time.Second }, // a busy machine starts it late
			want: Result{ExitCode: -1, TimedOut: true, Stdout: []byte("begun\n")}},
		"no such directory": {script: "true", change: func(c *Command) { c.Dir = "/no/such" }, want: Result{ExitCode: -1},
			err: "no such file"},
		"not there":        {change: func(c *Command) { c.Path = "no-such-program" }, want: Result{ExitCode: -1}, err: "not in the PATH"},
		"group of its own": {script: "test $(ps -o pgid= $$) = $$ && echo yes", want: Result{Stdout: []byte("yes\n")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, units, command := inUnit(t, test.script)
			if test.change != nil {
				test.change(&command)
			}
			for again := range 2 {
				got, err := m.Run(t.Context(), command)
				if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want %q", err, test.err)
				}
				if got.ExitCode != test.want.ExitCode || got.TimedOut != test.want.TimedOut ||
					!bytes.Equal(got.Stdout, test.want.Stdout) || !bytes.Equal(got.Stderr, test.want.Stderr) {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
				if name != "not there" && (got.Resumed != (again == 1) || units.started != 1) {
					t.Errorf("run %d: resumed %v, started %d times", again, got.Resumed, units.started)
				}
			}
			if name == "not there" {
				return
			}
			if _, err := os.Stat(filepath.Join(command.RunDir, specFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the spec, which holds secrets, is still there: %v", err)
			}
			if got := strings.Join(units.argv, " "); strings.Contains(got, test.script) && test.script != "" {
				t.Errorf("the program is visible in %q", got)
			}
		})
	}
}

// TestAgentDetaches shows that a program outlives the agent, that the next agent waits for it and learns its end, and that it ran once.
func TestAgentDetaches(t *testing.T) {
	for name, endsFirst := range map[string]bool{"still running": false, "ended meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			gate := filepath.Join(dir, "gate")
			if err := unix.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			m, units, command := inUnit(t, "echo begun >>"+dir+"/log; read line <"+gate+"; echo $line; exit 4")
			resume := command
			resume.ResumeOnly = true
			if _, err := m.Run(t.Context(), resume); !errors.Is(err, ErrNotRunning) {
				t.Errorf("before the start: got %v", err)
			}
			ctx, leave := context.WithCancelCause(t.Context())
			go func() {
				awaitFile(t, dir+"/log")
				leave(ErrDetach)
			}()
			if _, err := m.Run(ctx, command); !errors.Is(err, ErrDetach) {
				t.Fatalf("got %v", err)
			}
			open := func() {
				if err := os.WriteFile(gate, []byte("go on\n"), 0); err != nil {
					t.Error(err)
				}
			}
			if endsFirst {
				open()
				awaitFile(t, filepath.Join(command.RunDir, resultFile))
			} else {
				go open()
			}
			got, err := m.Run(t.Context(), resume)
			if err != nil || got.ExitCode != 4 || string(got.Stdout) != "go on\n" || !got.Resumed {
				t.Errorf("got %+v, %v", got, err)
			}
			if raw, _ := os.ReadFile(dir + "/log"); units.started != 1 || string(raw) != "begun\n" {
				t.Errorf("started %d times: %q", units.started, raw)
			}
		})
	}
}

// awaitFile waits until a file is there and not empty.
func awaitFile(t *testing.T, path string) {
	for range 6000 { // a minute: a busy machine may be long about starting a program
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s does not appear", path)
}

// TestCancelEndsEverything shows that whoever left the process group and the session is found too.
func TestCancelEndsEverything(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	m, _, command := inUnit(t, "echo out; sleep 61 & echo $! >>"+pids+
		"; setsid sh -c 'echo $$ >>"+pids+"; sleep 62 & echo $! >>"+pids+"; exit' & wait $!"+
		"; setsid -f sh -c 'echo $$ >>"+pids+"; exec sleep 63'"+
		"; while [ $(wc -l <"+pids+") -lt 4 ]; do sleep 0.05; done; echo >>"+pids+".all; sleep 64")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, pids+".all")
		cancel()
	}()
	got, err := m.Run(ctx, command)
	if !errors.Is(err, context.Canceled) || string(got.Stdout) != "out\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	raw, _ := os.ReadFile(pids)
	found := strings.Fields(string(raw))
	if len(found) != 4 {
		t.Fatalf("pids: %q", raw)
	}
	for _, pid := range found {
		assertGone(t, []byte(pid))
	}
	// With the agent's orders gone, nothing keeps it from being run again.
	command.Args = []string{"-c", "echo again"}
	if got, err := m.Run(t.Context(), command); err != nil || string(got.Stdout) != "again\n" || got.Resumed {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestACancelledContextEndsWhatRunsAndStartsNothing(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	m, units, command := inUnit(t, "echo $$ >"+mark+"; sleep 60")
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Run(dead, command); !errors.Is(err, context.Canceled) || units.started != 0 {
		t.Fatalf("got %v, started %d times", err, units.started)
	}
	ctx, leave := context.WithCancelCause(t.Context())
	go func() {
		awaitFile(t, mark)
		leave(ErrDetach)
	}()
	if _, err := m.Run(ctx, command); !errors.Is(err, ErrDetach) {
		t.Fatal(err)
	}
	if _, err := m.Run(dead, command); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	pid, _ := os.ReadFile(mark)
	assertGone(t, pid)
}

// TestShimDies shows that a shim that is killed is a failure with a reason while somebody waits, and a reason to run the program again
// when nobody did; what it left is killed first.
func TestShimDies(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	m, units, command := inUnit(t, "echo $$ >"+mark+"; sleep 60")
	go func() {
		awaitFile(t, mark)
		units.process().Kill()
	}()
	if _, err := m.Run(t.Context(), command); err == nil || !strings.Contains(err.Error(), "ended without a result: it was killed") {
		t.Errorf("got %v", err)
	}
	command.Args = []string{"-c", "echo again"}
	removed := units.removed
	resume := command
	resume.ResumeOnly = true
	if _, err := m.Run(t.Context(), resume); !errors.Is(err, ErrNotRunning) || units.removed == removed {
		t.Errorf("got %v, removed %d", err, units.removed-removed)
	}
	removed = units.removed
	if got, err := m.Run(t.Context(), command); err != nil || string(got.Stdout) != "again\n" || got.Resumed || units.removed == removed {
		t.Errorf("got %+v, %v, removed %d", got, err, units.removed-removed)
	}
	if pid, _ := os.ReadFile(mark); len(pid) > 0 {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(pid))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestShimIsStopped(t *testing.T) {
	for name, down := range map[string]bool{"by hand": false, "because the machine goes down": true} {
		t.Run(name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "mark")
			m, units, command := inUnit(t, "echo words; echo $$ >"+mark+"; sleep 60")
			units.down = down
			ctx, leave := context.WithCancelCause(t.Context())
			go func() {
				awaitFile(t, mark)
				_ = units.process().Signal(syscall.SIGTERM)
				if down { // else the agent takes the file away at once
					awaitFile(t, filepath.Join(command.RunDir, stoppedFile))
					leave(ErrDetach)
				}
			}()
			if !down {
				ctx = t.Context()
			}
			got, err := m.Run(ctx, command)
			if down != errors.Is(err, ErrDetach) || !down &&
				(!strings.Contains(err.Error(), "stopped from outside") || string(got.Stdout) != "words\n") {
				t.Errorf("got %+v, %v", got, err)
			}
			pid, _ := os.ReadFile(mark)
			assertGone(t, pid)
		})
	}
}

func TestServiceManagerRefuses(t *testing.T) {
	m, units, command := inUnit(t, "echo below; echo words >&2")
	units.refuse = errors.Join(systemd.ErrUnavailable, errors.New("no bus"))
	for again := range 2 {
		got, err := m.Run(t.Context(), command)
		if err != nil || string(got.Stdout) != "below\n" || string(got.Stderr) != "words\n" || got.Resumed != (again == 1) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	units.refuse = errors.New("its start failed")
	command.RunDir += "x"
	if _, err := m.Run(t.Context(), command); err == nil || !strings.Contains(err.Error(), "its start failed") {
		t.Errorf("got %v", err)
	}
}

func TestShimRefusesForeignRunDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Shim(dir); err == nil || !strings.Contains(err.Error(), "writable by nobody else") {
		t.Errorf("got %v", err)
	}
}

// TestDaemonKeepsItsOutput shows that a daemon that a program leaves behind delays nothing (B8), lives on, and can still write.
func TestDaemonKeepsItsOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, _, command := inUnit(t, "(read line <"+dir+"/gate; echo late; echo written >"+dir+"/done) & echo early")
	if err := unix.Mkfifo(dir+"/gate", 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got, err := m.Run(t.Context(), command)
	if err != nil || string(got.Stdout) != "early\n" || time.Since(start) > time.Minute {
		t.Fatalf("got %+v, %v after %s", got, err, time.Since(start))
	}
	if err := os.WriteFile(dir+"/gate", []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, dir+"/done")
	// The shim may still have to pass it on.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		raw, err := os.ReadFile(filepath.Join(command.RunDir, "stdout.log"))
		if err == nil && string(raw) == "early\nlate\n" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("logged %q, %v", raw, err)
		}
	}
}
