package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
)

// TestGoesOnWithoutTheHub reboots a machine in the middle of a plan while its hub is unreachable: the plan comes to its end all the same,
// and the hub is told when it is back.
func TestGoesOnWithoutTheHub(t *testing.T) {
	for _, old := range []bool{false, true} {
		for name, back := range map[string]func(w *world){
			"the hub has the same plan": func(*world) {},
			"the hub has another plan": func(w *world) {
				w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("other", "ok", true)}}, 1)
			},
			"the hub has canceled it": func(w *world) { w.secret.annotate("", "true") },
		} {
			t.Run(protocolOf(old)+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { goOnWithoutTheHub(t, old, back) })
			})
		}
	}
}

func protocolOf(old bool) string {
	if old {
		return "checksum"
	}
	return "state"
}

func goOnWithoutTheHub(t *testing.T, old bool, back func(w *world)) {
	w := newWorld(t)
	w.longRunning("slow", time.Minute)
	deliver := w.secret.deliver
	if old {
		deliver = w.secret.deliverOld
	}
	checksum := deliver(threeSteps(), 1)
	w.start()
	time.Sleep(90 * time.Second)
	w.secret.setDown(errors.New("connection refused"))
	w.host.PowerOff()
	w.stop()
	w.host.Restart()
	w.startAlone()
	if err := w.engine.Retry(); !errors.Is(err, errNothingToRetry) { // it does not keep the plan from going on
		t.Errorf("got %v", err)
	}
	time.Sleep(10 * time.Minute)
	w.checkRan("slow one@1", "slow two@1", "slow three@1")
	state := w.engine.State()
	if !state.Unreported || state.Last == nil || !state.Last.Succeeded || state.Last.Interrupted != 1 || state.Contacted ||
		state.SourceError == "" {
		t.Errorf("it says %+v", state)
	}
	w.stop()
	w.startAlone() // what is not reported survives one more restart
	w.waitAMinute()
	w.secret.setDown(nil)
	back(w)
	w.secret.hub(func(plans.SecretData) {})
	time.Sleep(3 * time.Minute)
	w.stop()
	got := w.secret.status()
	switch ran := w.ran(); {
	case len(ran) == 4: // the other plan
		if got.AppliedChecksum == checksum || got.State != plans.StateSucceeded {
			t.Errorf("got %+v", got)
		}
	case got.AppliedChecksum != checksum || got.SuccessCount != 1 || string(got.AppliedOutput["one"]) != "slow 1":
		t.Errorf("ran %v, got %+v", ran, got)
	}
}

func TestCancelAfterAStartWithoutTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := startThreeSteps(t, 1, 90*time.Second)
		w.secret.setDown(errors.New("connection refused"))
		w.stop()
		w.startAlone()
		time.Sleep(time.Minute) // the second has ended, the third runs
		w.secret.setDown(nil)
		w.secret.annotate("", "true")
		time.Sleep(10 * time.Minute)
		w.stop()
		if got := w.secret.status(); got.State != plans.StateCanceled || got.Checkpoint.CompletedInstructions != 2 {
			t.Errorf("got %+v", got)
		}
		w.checkRan("slow one@1", "slow two@1")
	})
}

// TestNothingBeginsWithoutTheHub reboots before the hub has agreed to the plan.
func TestNothingBeginsWithoutTheHub(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(protocolOf(old), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if old {
					w.secret.deliverOld(threeSteps(), 1)
				} else {
					w.secret.deliver(threeSteps(), 1)
				}
				w.program("slow", 0)
				w.secret.setDown(errors.New("connection refused"))
				w.start() // it has seen the plan and cannot agree on it
				w.waitAMinute()
				w.host.PowerOff()
				w.stop()
				w.host.Restart()
				w.startAlone()
				time.Sleep(time.Hour)
				if ran := w.ran(); len(ran) > 0 {
					t.Errorf("ran %v", ran)
				}
				w.secret.setDown(nil)
				w.secret.hub(func(plans.SecretData) {})
				w.waitAMinute()
				w.stop()
				w.checkRan("slow one@1", "slow two@1", "slow three@1")
			})
		})
	}
}

// TestHubIsRestoredToBeforeThePlan shows that B6 cannot happen. It gives back a Secret in which the plan is pending, with the same
// revision: it is applied and reported again.
func TestHubIsRestoredToBeforeThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", true)}}, 1)
		before := w.secret.copy()
		w.start()
		w.waitAMinute()
		w.secret.hub(func(plans.SecretData) { w.secret.data = before })
		w.waitAMinute()
		w.stop()
		if got := w.secret.status(); got.State != plans.StateSucceeded || got.Revision != 1 || len(w.ran()) != 2 {
			t.Errorf("ran %v, got %+v", w.ran(), got)
		}
	})
}

func TestStateDirectoryIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		synctest.Wait()
		err := New(w.options).Run(t.Context())
		if !errors.Is(err, fs.ErrLocked) || !strings.Contains(err.Error(), "pid 1") {
			t.Errorf("got %v", err)
		}
		w.stop()
	})
}

// TestTimeoutOfThePlan shows that a plan's own limit wins over the agent's.
func TestTimeoutOfThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.longRunning("slow", 2*time.Hour)
		plan := plans.Plan{Instructions: []plans.Instruction{once("short", "slow", false)}}
		plan.Instructions[0].TimeoutSeconds = 90
		w.secret.deliver(plan, 1)
		w.start()
		time.Sleep(2 * time.Minute)
		if got := string(w.secret.status().FailedOutput[report.ErrorOutput]); !strings.HasPrefix(got,
			"instructions[0] (short): timed out after 1m30s") {
			t.Errorf("got %q", got)
		}
		plan.Instructions[0].TimeoutSeconds = 3 * 3600
		w.secret.deliver(plan, 1)
		time.Sleep(2*time.Hour + time.Minute)
		w.stop()
		w.checkState(plans.StateSucceeded)
	})
}

// TestRunsAreKeptForAWhile shows that old runs go and the newest stay.
func TestRunsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.host.Program("write", func(_ context.Context, c run.Command) (run.Result, error) {
			return run.Result{}, w.host.WriteFile(c.RunDir+"/stdout.log", []byte(c.RunDir), fs.WithMode(0o600))
		})
		w.start()
		var newest string
		for i := range 30 {
			newest = w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once(strings.Repeat("x", i+1), "write", false)}}, 1)
			w.waitAMinute()
			if i == 15 {
				w.stop()
				w.start()
			}
		}
		w.stop()
		names, _ := w.host.ReadDir("/agent/state/runs")
		if len(names) != maxRuns || !strings.Contains(strings.Join(names, " "), newest[:12]+"-1-0") {
			t.Errorf("kept %d: %v", len(names), names)
		}
	})
}
