package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// annotate sets the hub's annotations; an empty value takes one away.
func (s *secret) annotate(paused, canceled string) {
	annotations := map[string]string{}
	for name, value := range map[string]string{plans.AnnotationPaused: paused, plans.AnnotationCanceled: canceled} {
		if value != "" {
			annotations[name] = value
		}
	}
	s.hub(func(plans.SecretData) { s.interrupt = plans.DecodeInterrupt(annotations) })
}

// longRunning adds a program that runs for some time, unless it is ended before.
func (w *world) longRunning(name string, d time.Duration) {
	w.host.Program(name, func(ctx context.Context, c run.Command) (run.Result, error) {
		if retry.Sleep(ctx, d) != nil {
			return run.Result{ExitCode: -1}, ctx.Err()
		}
		return run.Result{Stdout: []byte(name + " " + env(c, envAttempt))}, nil
	})
}

func threeSteps() plans.Plan {
	return plans.Plan{Instructions: []plans.Instruction{once("one", "slow", true), once("two", "slow", true), once("three", "slow", true)}}
}

// startThreeSteps runs a plan of three instructions, each of which takes a minute, for some time.
func startThreeSteps(t *testing.T, maxFailures int, d time.Duration) (w *world, checksum string) {
	t.Helper()
	w = newWorld(t)
	w.longRunning("slow", time.Minute)
	checksum = w.secret.deliver(threeSteps(), maxFailures)
	w.start()
	time.Sleep(d)
	return w, checksum
}

func TestPause(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%t", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, checksum := startThreeSteps(t, 1, 90*time.Second) // in the middle of the second
				w.secret.annotate("true", "")
				time.Sleep(10 * time.Minute)
				got := w.secret.status()
				want := &plans.Checkpoint{Checksum: checksum, CompletedInstructions: 2, TotalInstructions: 3, ResumeState: plans.StateInProgress,
					Paused: true}
				if diff := cmp.Diff(want, got.Checkpoint); diff != "" || got.State != plans.StatePaused || got.Progress != nil {
					t.Errorf("%s %+v %s", got.State, got.Progress, diff)
				}
				if state := w.engine.State(); state.Phase != PhasePaused {
					t.Errorf("it says that it is %s, %s", state.Phase, state.Reason)
				}
				if restart {
					w.stop()
					w.start()
					w.waitAMinute()
				}
				w.checkRan("slow one@1", "slow two@1")
				w.secret.annotate("false", "")
				time.Sleep(2 * time.Minute)
				w.stop()
				got = w.secret.status()
				if got.State != plans.StateSucceeded || got.Checkpoint != nil || got.Revision != 1 || string(got.AppliedOutput["one"]) != "slow 1" {
					t.Errorf("got %+v", got)
				}
				w.checkRan("slow one@1", "slow two@1", "slow three@1")
				if diff := cmp.Diff([]string{"in-progress/0/0", "paused/0/0", "in-progress/0/0", "succeeded/0/1"},
					distinct(w.secret.history())); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// distinct drops what only progress or probes have written.
func distinct(log []string) []string {
	var all []string
	for _, line := range log {
		if len(all) == 0 || all[len(all)-1] != line {
			all = append(all, line)
		}
	}
	return all
}

func TestPauseBeforeThePlanBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secret.annotate("true", "")
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", true)}}, 1)
		w.start()
		w.waitAMinute()
		got := w.secret.status()
		if got.State != plans.StatePaused || got.Checkpoint == nil || got.Checkpoint.ResumeState != plans.StatePending || got.Revision != 0 {
			t.Errorf("got %+v", got)
		}
		w.secret.annotate("", "")
		w.waitAMinute()
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.Revision != 1 || got.Checkpoint != nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNewPlanWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startThreeSteps(t, 1, 30*time.Second)
		w.secret.annotate("true", "")
		time.Sleep(time.Minute)
		w.secret.annotate("", "")
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
		time.Sleep(10 * time.Minute)
		w.stop()
		// The hub took the pause away before it brought the new plan, so the old one had gone on and came to its end.
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.Checkpoint != nil {
			t.Errorf("got %+v", got)
		}
		if ran := w.ran(); ran[len(ran)-1] != "ok other@1" {
			t.Errorf("ran %v", ran)
		}
	})
}

func TestCancel(t *testing.T) {
	tests := map[string]struct {
		when    time.Duration
		paused  string
		restart bool
		plan    string
		state   plans.State
		ran     []string
		done    int
	}{
		"in the middle":              {when: 90 * time.Second, state: plans.StateCanceled, ran: []string{"slow one@1"}, done: 1},
		"beats a pause":              {when: 90 * time.Second, paused: "true", state: plans.StateCanceled, ran: []string{"slow one@1"}, done: 1},
		"beats a pause that is none": {when: 90 * time.Second, paused: "maybe", state: plans.StateCanceled, ran: []string{"slow one@1"}, done: 1},
		"seen after a restart":       {when: 90 * time.Second, restart: true, state: plans.StateCanceled, ran: []string{"slow one@1"}, done: 1},
		"after it has succeeded": {when: 10 * time.Minute, state: plans.StateSucceeded,
			ran: []string{"slow one@1", "slow two@1", "slow three@1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, checksum := startThreeSteps(t, 3, test.when)
				if test.restart {
					w.stop()
				}
				w.secret.annotate(test.paused, "true")
				if test.restart {
					w.start()
				}
				time.Sleep(10 * time.Minute)
				got := w.secret.status()
				if got.State != test.state || got.FailureCount != 0 || got.Progress != nil {
					t.Errorf("got %+v", got)
				}
				if test.state == plans.StateCanceled {
					want := &plans.Checkpoint{Checksum: checksum, CompletedInstructions: test.done, TotalInstructions: 3}
					if diff := cmp.Diff(want, got.Checkpoint); diff != "" {
						t.Error(diff)
					}
				}
				// It is over for good: neither a restart nor a hub that takes its word back begins it again.
				w.stop()
				w.start()
				w.secret.annotate("", "")
				time.Sleep(time.Hour)
				w.checkRan(test.ran...)
				w.checkState(test.state)
				// New content is new.
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
				w.waitAMinute()
				w.stop()
				if got := w.secret.status(); got.State != plans.StateSucceeded || got.Checkpoint != nil {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

func TestCancelIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("stubborn", func(ctx context.Context, _ run.Command) (run.Result, error) {
			<-ctx.Done()
			return run.Result{ExitCode: -1}, ctx.Err()
		})
		w.options.Host = stubborn{w.host}
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("only", "stubborn", false)}}, 1)
		w.start()
		w.waitAMinute()
		w.secret.annotate("", "true")
		w.waitAMinute()
		w.stop()
		if got := w.secret.status(); got.State != plans.StateCanceled || got.Checkpoint == nil || !got.Checkpoint.TerminationIncomplete {
			t.Errorf("got %+v", got)
		}
	})
}

// TestCancelBeforeAnAttemptGoesOn cancels a plan while its attempt, which a restart has interrupted, waits for a hub that does not answer.
// The next plan is not kept waiting.
func TestCancelBeforeAnAttemptGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.longRunning("slow", time.Minute)
		source := &hanging{secret: w.secret}
		w.options.Source = source
		w.secret.deliver(threeSteps(), 1)
		pending := w.secret.copy()
		w.start()
		time.Sleep(30 * time.Second)
		w.stop()
		source.hangs.Store(true)
		w.secret.hub(func(plans.SecretData) { w.secret.data = pending })
		w.start()
		time.Sleep(10 * time.Second)
		source.hangs.Store(false)
		w.secret.annotate("", "true")
		w.waitAMinute()
		w.checkState(plans.StateCanceled)
		w.secret.annotate("", "")
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
		w.waitAMinute()
		w.stop()
		w.checkState(plans.StateSucceeded)
	})
}

// hanging is a source that does not answer writes while hangs is set.
type hanging struct {
	*secret
	hangs atomic.Bool
}

func (h *hanging) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return source.Snapshot{}, ctx.Err()
	}
	return h.secret.Update(ctx, uid, checksum, change)
}

// stubborn is a host on which something is left of each program that is ended.
type stubborn struct{ host.Host }

func (s stubborn) Run(ctx context.Context, command run.Command) (run.Result, error) {
	result, err := s.Host.Run(ctx, command)
	if ctx.Err() != nil {
		err = errors.Join(err, run.ErrStillRunning)
	}
	return result, err
}

func TestInvalidAnnotation(t *testing.T) {
	for name, test := range map[string]struct{ paused, canceled string }{
		"pause":                      {paused: "yes"},
		"cancel":                     {canceled: "yes"},
		"cancel beside a real pause": {paused: "true", canceled: "TRUE"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				newHealth(w)
				w.secret.annotate(test.paused, test.canceled)
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", true)}, Probes: probes(0, "p")}, 1)
				w.start()
				w.waitAMinute()
				if _, writes := w.secret.counts(); writes != 0 || len(w.ran()) != 0 {
					t.Errorf("%d writes, ran %v", writes, w.ran())
				}
				if state := w.engine.State(); state.Phase != PhaseRefusing || state.Reason == "" {
					t.Errorf("it says that it is %s, %s", state.Phase, state.Reason)
				}
				w.secret.annotate("", "")
				w.waitAMinute()
				w.stop()
				w.checkState(plans.StateSucceeded)
			})
		})
	}
}

func TestInvalidAnnotationDuringPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startThreeSteps(t, 1, 90*time.Second)
		_, before := w.secret.counts()
		w.secret.annotate("", "yes")
		time.Sleep(10 * time.Minute)
		if _, writes := w.secret.counts(); writes != before {
			t.Errorf("%d writes", writes-before)
		}
		w.checkRan("slow one@1", "slow two@1")
		w.secret.annotate("", "false")
		time.Sleep(10 * time.Minute)
		w.stop()
		w.checkState(plans.StateSucceeded)
	})
}

func TestInterruptWithoutPlanState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.longRunning("slow", time.Minute)
		w.secret.deliverOld(threeSteps(), 3)
		w.start()
		time.Sleep(30 * time.Second)
		w.secret.annotate("true", "")
		time.Sleep(10 * time.Minute)
		if got := w.secret.status(); got.State != "" || got.Checkpoint != nil || len(w.ran()) != 1 {
			t.Errorf("ran %v, got %+v", w.ran(), got)
		}
		w.secret.annotate("false", "")
		time.Sleep(30 * time.Second)
		w.secret.annotate("false", "true")
		time.Sleep(10 * time.Minute)
		w.secret.annotate("", "")
		time.Sleep(10 * time.Minute)
		w.stop()
		if got := w.secret.status(); got.State != "" || got.FailureCount != 0 || got.AppliedChecksum != "" || got.FailedChecksum != "" {
			t.Errorf("got %+v", got)
		}
		w.checkRan("slow one@1")
	})
}

// TestInterruptionStopsPeriodicInstructions has a plan that has succeeded: a pause and a cancellation let no periodic instruction begin,
// and its probes go on.
func TestInterruptionStopsPeriodicInstructions(t *testing.T) {
	for name, test := range map[string]struct{ paused, canceled string }{"pause": {paused: "true"}, "cancel": {canceled: "true"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				h := newHealth(w)
				runs := w.times("p", func(int) int { return 0 })
				w.secret.deliver(plans.Plan{PeriodicInstructions: []plans.PeriodicInstruction{periodic("p", "p", 60)}, Probes: probes(0, "well")}, 1)
				w.start()
				time.Sleep(90 * time.Second)
				w.secret.annotate(test.paused, test.canceled)
				asked := h.count("http://well")
				time.Sleep(time.Hour)
				if len(*runs) != 2 || w.secret.status().State != plans.StateSucceeded {
					t.Errorf("ran at %v", *runs)
				}
				if h.count("http://well") < asked+700 {
					t.Error("the probes have stopped")
				}
				w.secret.annotate("", "")
				time.Sleep(2 * time.Minute)
				w.stop()
				if len(*runs) < 4 {
					t.Errorf("ran at %v", *runs)
				}
			})
		})
	}
}
