package nodedriver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
)

// TestQueue: a machine waits for others as long as that takes, and the time of its operation begins afterwards. One whose operation is
// canceled meanwhile was not begun.
func TestQueue(t *testing.T) {
	created := &State{Name: "a", Files: map[string][]byte{configFile: []byte(`{"Driver":{}}`)}}
	for name, operate := range map[string]func(context.Context, *Local) error{
		"create": func(ctx context.Context, l *Local) error {
			_, _, err := l.Create(ctx, &Machine{Driver: "lab", Source: managementv3.NodeDriverSpec{Builtin: true}})
			return err
		},
		"remove": func(ctx context.Context, l *Local) error {
			_, err := l.Remove(ctx, &Machine{Driver: "lab", Source: managementv3.NodeDriverSpec{Builtin: true}, State: created})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &Local{Programs: &programs.Store{}, Runner: NewContained()}
			release, err := l.Runner.acquire(t.Context(), &Machine{})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- operate(t.Context(), l) }()
			time.Sleep(2 * CreateTimeout)
			synctest.Wait()
			if len(ended) > 0 {
				t.Errorf("%s: ended while it waited: %v", name, <-ended)
				return
			}
			release()
			var program *ProgramError
			var fault *programs.FaultError
			if err := <-ended; !errors.As(err, &program) || !errors.As(err, &fault) {
				t.Errorf("%s: %v", name, err)
			}

			if _, err := l.Runner.acquire(t.Context(), &Machine{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := operate(ctx, l); !errors.Is(err, ErrNotStarted) {
				t.Errorf("%s: canceled: %v", name, err)
			}
		})
	}
}

// TestPersist: errors that go on give up a machine, and so does a driver that has ended, at once.
func TestPersist(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want time.Duration
	}{
		"answers": {&plugin.Error{Message: "busy", Answered: true}, stateGrace},
		"ended":   {&plugin.Error{Message: "the program ended"}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := persist(t.Context(), func() (bool, error) { return false, tt.err })
			if took := time.Since(began); !errors.Is(err, tt.err) || took < tt.want || took > tt.want+stateInterval {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
}

// TestAnotherArchitecture: a program that the machine cannot execute has begun nothing, which costs no attempt: the next Job may run on
// another Node. The error says what is wrong.
func TestAnotherArchitecture(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "docker-machine-driver-lab")
	if err := os.WriteFile(file, []byte("\x7fELF of another architecture"), 0o700); err != nil { //nolint:gosec
		t.Fatal(err)
	}
	runner, err := NewRunner(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &Local{Programs: programs.NewStore(dir), Runner: runner}
	source := managementv3.NodeDriverSpec{Builtin: true}
	created := &State{Name: "a", Files: map[string][]byte{configFile: []byte(`{"Driver":{}}`)}}
	for name, operate := range map[string]func() error{
		"flags": func() error {
			_, _, err := l.Flags(t.Context(), "lab", &source)
			return err
		},
		"create": func() error {
			_, _, err := l.Create(t.Context(), &Machine{Name: "a", Driver: "lab", Source: source})
			return err
		},
		"create again": func() error {
			_, _, err := l.Create(t.Context(), &Machine{Name: "a", Driver: "lab", Source: source, State: created})
			return err
		},
		"remove": func() error {
			_, err := l.Remove(t.Context(), &Machine{Name: "a", Driver: "lab", Source: source, State: created})
			return err
		},
	} {
		var program *ProgramError
		if err := operate(); !errors.As(err, &program) || !strings.Contains(err.Error(), "not built for "+runtime.GOARCH) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(runner.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLibraries: a program that needs libraries, as "go build" makes one with cgo, cannot be executed in the sandbox, and the kernel calls
// that a missing file. The error says what is missing.
func TestLibraries(t *testing.T) {
	const dynamic = "/bin/sh"
	if !programs.IsDynamic(dynamic) {
		t.Fatalf("the test takes %s as a program that needs libraries, which this one does not", dynamic)
	}
	dir := t.TempDir()
	content, err := os.ReadFile(dynamic)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "docker-machine-driver-lab"), content, 0o700) //nolint:gosec
	}
	if err != nil {
		t.Fatal(err)
	}
	runner, err := NewRunner(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &Local{Programs: programs.NewStore(dir), Runner: runner}
	var program *ProgramError
	_, _, err = l.Flags(t.Context(), "lab", &managementv3.NodeDriverSpec{Builtin: true})
	if !errors.As(err, &program) || !strings.Contains(err.Error(), "needs shared libraries") {
		t.Errorf("got %v", err)
	}
}
