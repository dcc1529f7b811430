package cli

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

type fakeWorker struct {
	mu    sync.Mutex
	state engine.State
	dead  bool
}

func (w *fakeWorker) State() engine.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *fakeWorker) Alive(time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.dead
}

func (w *fakeWorker) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// TestServiceManager checks the notifications of an agent from its start to its end.
func TestServiceManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		var mu sync.Mutex
		took := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := heard
			heard = nil
			return out
		}
		check := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, took()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		var log bytes.Buffer
		s := newService(func(state string) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, state)
		}, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
		hub, local := &fakeWorker{}, &fakeWorker{}
		hub.state = engine.State{Source: "hub", Phase: engine.PhaseIdle}
		local.state = engine.State{Source: "a.plan", Checksum: strings.Repeat("b", 64), Phase: engine.PhaseIdle}
		first, second := s.notifier("hub"), s.notifier("local")
		s.add(hub)
		s.add(local)
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go s.run(ctx, stopped)

		first()
		check("while one engine still reads its journal")
		second()
		check("when both are up", "READY=1", "STATUS=hub: Waiting for the first plan; a.plan: Idle with plan bbbbbbbbbbbb")
		first()
		check("when nothing has changed")
		time.Sleep(30 * time.Second)
		check("after half the interval", "WATCHDOG=1")

		local.set(func() { local.dead = true })
		time.Sleep(2 * time.Minute)
		check("while an executor hangs")
		if got := strings.Count(log.String(), "Engine does not respond"); got != 1 {
			t.Errorf("logged %d times that an engine hangs", got)
		}
		local.set(func() { local.dead = false })
		time.Sleep(30 * time.Second)
		check("when it goes on", "WATCHDOG=1")

		cancel()
		check("at a stop", "STOPPING=1\nSTATUS=Stopping")
		time.Sleep(11 * time.Second)
		check("while it stops", "EXTEND_TIMEOUT_USEC=15000000", "EXTEND_TIMEOUT_USEC=15000000")
		time.Sleep(time.Hour)
		if got := len(took()); got > 24 {
			t.Errorf("extended the stop timeout %d times more, so a stop may hang forever", got)
		}
		close(stopped)
	})
}

func TestStatusLine(t *testing.T) {
	checksum := strings.Repeat("0123456789abcdef", 4)
	away := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		state engine.State
		want  string
	}{
		"nothing yet": {engine.State{Phase: engine.PhaseIdle}, "Waiting for the first plan"},
		"applying": {
			engine.State{Checksum: checksum, Phase: engine.PhaseApplying, Last: &journal.Attempt{Number: 2},
				Progress: &plans.Progress{Phase: plans.PhaseRunning, Index: 2, Total: 5, Name: "install"}},
			"Applying plan 0123456789ab, attempt 2, running instruction 3 of 5 (install)",
		},
		"files": {
			engine.State{Checksum: checksum, Phase: engine.PhaseApplying, Progress: &plans.Progress{Phase: plans.PhaseFiles}},
			"Applying plan 0123456789ab, files",
		},
		"applied": {
			engine.State{Checksum: checksum, Phase: engine.PhaseIdle, Last: &journal.Attempt{Checksum: checksum, Ended: away, Succeeded: true}},
			"Applied plan 0123456789ab",
		},
		"failed, not reported, hub away": {
			engine.State{Checksum: checksum, Phase: engine.PhaseIdle, Last: &journal.Attempt{Checksum: checksum, Ended: away}, Unreported: true,
				SourceError: "dial tcp", SourceErrorSince: away},
			"Failed to apply plan 0123456789ab, outcome not reported yet; hub unreachable since 2026-03-01T12:00:00Z",
		},
		"refusing": {
			engine.State{Checksum: checksum, Phase: engine.PhaseRefusing, Reason: "the signature\nis wrong"},
			"Refusing with plan 0123456789ab: the signature is wrong",
		},
		"long": {
			engine.State{Checksum: checksum, Phase: engine.PhaseWaiting, Reason: strings.Repeat("ä", 200)},
			"Waiting with plan 0123456789ab: " + strings.Repeat("ä", 102) + "...",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, statusLine([]engine.State{test.state})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
