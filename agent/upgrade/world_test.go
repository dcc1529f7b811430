package upgrade

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

const (
	program        = "/usr/local/bin/system-agent"
	stateDirectory = "/var/lib/rancher/agent/state"
	unitDirectory  = "/etc/systemd/system"
	marker         = "/usr/lib/rancher-system-agent/packaged"
	machineName    = "fleet/m1"
	oldBinary      = "the old agent"
	newBinary      = "the new agent"
	timeout        = 10 * time.Minute
)

func sumOf(content string) string {
	sum, _ := checksum(strings.NewReader(content))
	return sum
}

// world is a machine with systemd and its hub.
type world struct {
	t    *testing.T
	host *fake.Host
	gate *semaphore.Weighted
	key  ed25519.PrivateKey
	// unreachable are the binaries that do not reach the hub.
	unreachable map[string]bool
	// repeats lets the hub ask the old agent for something again and again.
	repeats bool
	unit    string

	mu      sync.Mutex
	raw     []byte
	status  *plans.AgentStatus
	reports []plans.AgentStatus
	offered map[string]string
	fail    error
	process context.CancelFunc
	timer   context.CancelFunc
	manager *Manager
	exited  chan struct{}
	// wakes are the channels of UpgradeChanged of processes.
	wake chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, host: fake.New(), key: key, unreachable: map[string]bool{}, unit: "rancher-system-agent.service",
		offered: map[string]string{"amd64": newBinary}, wake: make(chan struct{}, 1)}
	for _, path := range []string{program, stateDirectory + "/x", unitDirectory + "/x"} {
		if err := w.host.WriteFile(path, []byte(oldBinary), fs.WithMode(0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, binary := range []string{oldBinary, newBinary} {
		w.host.Program(sumOf(binary), func(context.Context, run.Command) (run.Result, error) {
			return run.Result{Stdout: []byte(versionPrefix + "of " + binary + "\n")}, nil
		})
	}
	w.host.Program("systemctl", w.systemctl)
	return w
}

// request makes the hub ask for an upgrade with a sequence.
func (w *world) request(sequence int64, checksums map[string]string) {
	w.t.Helper()
	raw, err := plans.SignUpgrade(w.key, plans.AgentUpgrade{Generation: sequence, Sequence: sequence, Checksums: checksums}, machineName)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set(raw)
}

func (w *world) set(raw []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raw = raw
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// systemctl plays the part of systemd.
func (w *world) systemctl(_ context.Context, command run.Command) (run.Result, error) {
	switch strings.Join(command.Args[:1], "") + " " + command.Args[len(command.Args)-1] {
	case "restart " + RollbackUnit + ".timer":
		w.startTimer()
	case "stop " + RollbackUnit + ".timer":
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.timer != nil {
			w.timer()
		}
	case "try-restart " + w.unit:
		w.kill()
		w.start()
	case "show " + w.unit:
		return run.Result{Stdout: []byte("SubState=auto-restart\nNRestarts=7\nResult=exit-code\nExecMainStatus=2\n" +
			"StatusText=Hub unreachable\n")}, nil
	case "daemon-reload daemon-reload":
	default:
		return run.Result{ExitCode: 1, Stderr: []byte("unexpected: " + strings.Join(command.Args, " "))}, nil
	}
	return run.Result{}, nil
}

// startTimer starts the timer as its unit says.
func (w *world) startTimer() {
	unit := string(w.host.Files()[filepath.Join(unitDirectory, RollbackUnit+".timer")].Content)
	ctx, cancel := context.WithCancel(context.Background())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer()
	}
	w.timer = cancel
	ended := make(chan struct{}, 10) // the rollback has become inactive
	rollback := func() {
		_ = Rollback(context.Background(), w.host, stateDirectory, unitDirectory, nil)
		ended <- struct{}{}
	}
	for line := range strings.Lines(unit) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if key != "OnActiveSec" && key != "OnUnitInactiveSec" {
			continue
		}
		seconds, err := strconv.Atoi(value)
		if err != nil {
			w.t.Error(err)
		}
		delay := time.Duration(seconds) * time.Second
		if key == "OnActiveSec" {
			go func() {
				select {
				case <-ctx.Done():
				case <-time.After(delay):
					rollback()
				}
			}()
			continue
		}
		go func() {
			var due <-chan time.Time
			for {
				select {
				case <-ctx.Done():
					return
				case <-ended:
					due = time.After(delay)
				case <-due:
					rollback()
				}
			}
		}()
	}
}

// boot starts the machine.
func (w *world) boot() {
	if _, enabled := w.host.Files()[filepath.Join(unitDirectory, "timers.target.wants", RollbackUnit+".timer")]; enabled {
		w.startTimer()
	}
	w.start()
}

// powerOff is called by the machine when its power is cut.
func (w *world) powerOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer()
	}
	if w.process != nil {
		w.process()
	}
}

// kill ends the agent.
func (w *world) kill() {
	w.mu.Lock()
	process, exited := w.process, w.exited
	w.mu.Unlock()
	if process != nil {
		process()
		<-exited
	}
}

// start starts the agent, and executes the binary at its path when it asks for that.
func (w *world) start() {
	ctx, cancel := context.WithCancel(context.Background())
	exited := make(chan struct{})
	w.mu.Lock()
	w.process, w.exited = cancel, exited
	w.mu.Unlock()
	go func() {
		defer close(exited)
		for ctx.Err() == nil {
			file, found := w.host.Files()[program]
			if !found || len(file.Content) == 0 {
				w.t.Error("there is no agent to run")
				return
			}
			w.execute(ctx, string(file.Content))
		}
	}()
}

// execute runs one binary until ctx is done or it is replaced.
func (w *world) execute(ctx context.Context, binary string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.gate = semaphore.NewWeighted(1)
	source := &hub{world: w, binary: binary, changed: make(chan struct{}, 1)}
	source.changed <- struct{}{}
	if w.repeats && binary == oldBinary {
		close(source.changed)
	} else {
		go source.forward(ctx)
	}
	manager := New(Options{
		Source: source, Host: w.host, Log: slog.New(slog.DiscardHandler), Gate: w.gate, Version: "of " + binary, Arch: "amd64",
		Program: program, Unit: w.unit, UnitDirectory: unitDirectory, PackageMarker: marker, StateDirectory: stateDirectory,
		Timeout: timeout, Replace: cancel,
		Self: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(binary)), nil },
	})
	w.mu.Lock()
	w.manager = manager
	w.mu.Unlock()
	manager.Run(ctx)
}

// reported is the status that the hub knows.
func (w *world) reported() plans.AgentStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == nil {
		return plans.AgentStatus{}
	}
	return *w.status
}

// checkStatus compares what people on the machine see with what they should: from the running agent, and from its state directory. nil is
// no upgrade.
func (w *world) checkStatus(running, offline *Status) {
	w.t.Helper()
	w.mu.Lock()
	got := w.manager.Status()
	w.mu.Unlock()
	if diff := cmp.Diff(running, got); diff != "" {
		w.t.Errorf("status of the running agent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(offline, ReadStatus(w.host, stateDirectory)); diff != "" {
		w.t.Errorf("status in the state directory (-want +got):\n%s", diff)
	}
}

// check compares the binary at the agent's path and the reported status, and that nothing of the upgrade is left over.
func (w *world) check(binary string, want plans.AgentStatus) {
	w.t.Helper()
	files := w.host.Files()
	if got := string(files[program].Content); got != binary {
		w.t.Errorf("installed is %q, want %q", got, binary)
	}
	if got := w.reported(); got != want {
		w.t.Errorf("reported is %+v, want %+v", got, want)
	}
	for path, file := range files {
		if strings.Contains(path, RollbackUnit) {
			w.t.Errorf("left: %s", path)
		}
		if sum := filepath.Base(path); filepath.Base(filepath.Dir(path)) == VersionsDirectory && sumOf(string(file.Content)) != sum {
			w.t.Errorf("%s has another content", path)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.reports) > 6 {
		w.t.Errorf("%d reports: %s", len(w.reports), fmt.Sprint(w.reports))
	}
}

func (w *world) end() {
	w.powerOff()
	w.kill()
}
