package fake

import (
	"context"
	"errors"
	"testing"

	"github.com/drover-dev/drover/agent/host/run"
)

func TestRunWithRunDir(t *testing.T) {
	h := New()
	began, finish := make(chan struct{}, 10), make(chan struct{})
	h.Program("slow", func(ctx context.Context, _ run.Command) (run.Result, error) {
		began <- struct{}{}
		select {
		case <-finish:
			return run.Result{ExitCode: 3}, nil
		case <-ctx.Done():
			return run.Result{ExitCode: -1}, ctx.Err()
		}
	})
	command := run.Command{Path: "slow", RunDir: "/runs/1", Unit: "unit-1"}
	resume := command
	resume.ResumeOnly = true
	if _, err := h.Run(t.Context(), resume); !errors.Is(err, run.ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	detaching, detach := context.WithCancelCause(t.Context())
	go func() { <-began; detach(run.ErrDetach) }()
	if _, err := h.Run(detaching, command); !errors.Is(err, run.ErrDetach) {
		t.Fatalf("got %v", err)
	}
	if running := h.Running(); len(running) != 1 {
		t.Fatalf("it was not left running: %v", running)
	}
	close(finish)
	for range 2 {
		if got, err := h.Run(t.Context(), resume); err != nil || got.ExitCode != 3 || !got.Resumed {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	if runs := h.Runs(); len(runs) != 1 {
		t.Errorf("it ran %d times", len(runs))
	}
}

// TestRunAfterPowerCut shows when a program runs again: what was synced stays, what ran is cut off.
func TestRunAfterPowerCut(t *testing.T) {
	for name, test := range map[string]struct {
		unit  string
		after bool
		runs  int
	}{
		"before it starts":            {unit: "u", runs: 1},
		"after it ended, in a unit":   {unit: "u", after: true, runs: 1},
		"after it ended, without one": {after: true, runs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := New()
			h.Program("echo", func(context.Context, run.Command) (run.Result, error) { return run.Result{}, nil })
			h.StopAt(1, test.after, nil)
			command := run.Command{Path: "echo", RunDir: "/runs/1", Unit: test.unit}
			if _, err := h.Run(t.Context(), command); !errors.Is(err, ErrStopped) {
				t.Fatalf("got %v", err)
			}
			h.Restart()
			if _, err := h.Run(t.Context(), command); err != nil {
				t.Fatal(err)
			}
			if runs := h.Runs(); len(runs) != test.runs {
				t.Errorf("it ran %d times", len(runs))
			}
		})
	}
}
