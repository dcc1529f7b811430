package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/metrics"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

// memorySource is a plan Secret in memory.
type memorySource struct {
	mu       sync.Mutex
	snapshot source.Snapshot
	updates  chan source.Snapshot
}

func (s *memorySource) Updates() <-chan source.Snapshot { return s.updates }

func (s *memorySource) Get(context.Context) (source.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot, nil
}

func (s *memorySource) Update(_ context.Context, _, _ string, change func(*plans.Status)) (source.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.snapshot.Status)
	return s.snapshot, nil
}

// TestDiskHangs lets the disk hang for five minutes while the journal is written: status and metrics are served, and the watchdog is
// notified. Then the plan continues.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New()
		machine.Program("ok", func(context.Context, run.Command) (run.Result, error) { return run.Result{}, nil })
		var mu sync.Mutex
		var heard []string
		s := newService(func(state string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, state)
		}, time.Minute, slog.New(slog.DiscardHandler))
		memory := &memorySource{updates: make(chan source.Snapshot, 1)}
		agent := engine.New(engine.Options{Source: memory, Host: machine, Notify: s.notifier("hub"), Log: slog.New(slog.DiscardHandler),
			WorkDirectory: "/work", StateDirectory: "/state"})
		s.add(agent)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx, stopped) })
		running.Go(func() {
			if err := agent.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()

		raw, err := plans.Plan{Instructions: []plans.Instruction{
			{CommonInstruction: plans.CommonInstruction{Name: "one", Command: "ok", TimeoutSeconds: 5}},
		}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		memory.snapshot = source.Snapshot{UID: "1", Delivery: plans.Delivery{Plan: raw}, Status: plans.Status{State: plans.StatePending}}
		goOn := machine.Hang()
		memory.updates <- memory.snapshot
		time.Sleep(5 * time.Minute)

		if state := agent.State(); state.Phase != engine.PhaseApplying || state.Checksum != plans.Checksum(raw) {
			t.Errorf("its state is %+v", state)
		}
		if got := s.agents()["hub"]; got == nil || string(got.Plan()) != string(raw) {
			t.Error("the commands get no answer")
		}
		handler := metrics.Handler(metrics.Options{Engines: s.list})
		for _, path := range []string{"/metrics", "/healthz"} {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if answer.Code != http.StatusOK {
				t.Errorf("%s answers %d: %s", path, answer.Code, answer.Body)
			}
		}
		mu.Lock()
		fed := len(slices.DeleteFunc(slices.Clone(heard), func(state string) bool { return state != "WATCHDOG=1" }))
		mu.Unlock()
		if fed < 9 {
			t.Errorf("the watchdog was fed %d times in 5 minutes", fed)
		}

		goOn()
		time.Sleep(time.Minute)
		if now, _ := memory.Get(ctx); now.Status.State != plans.StateSucceeded {
			t.Errorf("the status is %+v", now.Status)
		}
		cancel()
		close(stopped)
		running.Wait()
	})
}
