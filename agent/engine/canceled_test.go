package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

// cancelAnother delivers another plan and cancels it.
func (w *world) cancelAnother() {
	w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", false)}}, 1)
	w.secret.annotate("", "true")
}

// TestCancellationOfAnotherPlan restarts the agent while a program runs in its unit; meanwhile the hub delivers another plan and cancels
// it. The program is stopped, and its plan does not go on when the hub takes the cancellation back.
func TestCancellationOfAnotherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startThreeSteps(t, 3, 90*time.Second)
		w.stop()
		w.cancelAnother()
		w.start()
		time.Sleep(10 * time.Second)
		if running := w.host.Running(); len(running) > 0 {
			t.Errorf("%v still runs", running)
		}
		w.checkState(plans.StateCanceled)
		w.secret.annotate("", "")
		time.Sleep(10 * time.Minute)
		w.stop()
		w.checkRan("slow one@1")
		w.checkState(plans.StateCanceled)
	})
}

// TestCancellationOfAnotherPlanAfterACrash stops the world at each durable effect of a plan, and has the hub deliver and cancel another one
// meanwhile. Nothing more of the first one runs.
func TestCancellationOfAnotherPlanAfterACrash(t *testing.T) {
	plan := plans.Plan{Files: []plans.File{file("/etc/a", "A"), file("/etc/b", "B")},
		Instructions: []plans.Instruction{once("one", "ok", true), once("two", "ok", true)}}
	for step, whole := 1, false; !whole; step++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.secret.deliver(plan, 3)
			whole = !w.crash(step, false)
			before := w.ran()
			w.cancelAnother()
			w.start()
			w.waitAMinute()
			w.checkState(plans.StateCanceled)
			w.secret.annotate("", "")
			w.waitAMinute()
			w.stop()
			if after := w.ran(); !slices.Equal(before, after) {
				t.Errorf("ran %v before the crash, and %v in all", before, after)
			}
		})
		if t.Failed() || step > 300 {
			t.Fatalf("failed at effect %d", step)
		}
	}
}

// TestCancelWhileRollingBack stops the world while files are restored, and has the hub cancel the plan, or another one, meanwhile. All
// files are restored.
func TestCancelWhileRollingBack(t *testing.T) {
	for name, test := range map[string]struct {
		cancel func(w *world)
		state  plans.State
	}{
		"the plan":     {func(w *world) { w.secret.annotate("", "true") }, plans.StateFailed},
		"another plan": {(*world).cancelAnother, plans.StateCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			points := 0
			for step, whole := 1, false; !whole; step++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.before()
					before := w.outside()
					w.secret.deliver(changes(true, "ok", "bad"), 1)
					whole = !w.crash(step, false)
					if r, err := journal.Read(w.host.Files()["/agent/state/"+journal.FileName].Content); err != nil || !r.RollingBack {
						return
					}
					points++
					test.cancel(w)
					w.start()
					w.waitAMinute()
					w.stop()
					w.checkState(test.state)
					if diff := cmp.Diff(before, w.outside()); diff != "" {
						t.Error(diff)
					}
					if kept := w.kept(); len(kept) > 0 {
						t.Errorf("kept %v", kept)
					}
				})
				if t.Failed() || step > 300 {
					t.Fatalf("failed at effect %d", step)
				}
			}
			if points < 5 {
				t.Errorf("only %d points while files are restored", points)
			}
		})
	}
}
