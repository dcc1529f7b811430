package engine

import (
	"context"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
)

// TestProgramOfAnEarlierAttempt restarts the agent while a program runs in its unit, and has the hub deliver the plan as another one
// meanwhile. The program is stopped before one of the new attempt starts.
func TestProgramOfAnEarlierAttempt(t *testing.T) {
	deliveries := map[string]struct {
		old     bool
		deliver func(*secret, plans.SecretData)
	}{
		"the Secret is recreated": {false, func(s *secret, data plans.SecretData) {
			s.uid, data[plans.KeyPlanState] = "uid-2", []byte(plans.StatePending)
			delete(data, plans.KeyPlanRevision)
		}},
		"the Secret is recreated, without plan-state": {true, func(s *secret, _ plans.SecretData) { s.uid = "uid-2" }},
		"the plan is pending again": {false, func(_ *secret, data plans.SecretData) {
			data[plans.KeyPlanState], data[plans.KeyPlanRevision] = []byte(plans.StatePending), []byte("5")
		}},
	}
	for name, test := range deliveries {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				var running, most atomic.Int32
				w.host.Program("slow", func(ctx context.Context, _ run.Command) (run.Result, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					return run.Result{}, retry.Sleep(ctx, time.Minute)
				})
				checksum := ""
				if test.old {
					checksum = w.secret.deliverOld(threeSteps(), 1)
				} else {
					checksum = w.secret.deliver(threeSteps(), 1)
				}
				w.start()
				time.Sleep(30 * time.Second)
				w.stop()
				if running.Load() != 1 {
					t.Fatal("the program does not survive the agent")
				}
				w.secret.hub(func(data plans.SecretData) { test.deliver(w.secret, data) })
				w.start()
				time.Sleep(10 * time.Minute)
				w.stop()
				if got := w.secret.status(); got.AppliedChecksum != checksum || got.FailureCount != 0 || most.Load() != 1 || len(w.ran()) != 3 {
					t.Errorf("%d programs ran at the same time, all were %v; got %+v", most.Load(), w.ran(), got)
				}
			})
		})
	}
}

// TestPauseAfterARestart pauses a plan while the agent is stopped in the middle of its second instruction. The hub hears that it is paused
// when that instruction has ended, and after a reboot nothing is started to find out.
func TestPauseAfterARestart(t *testing.T) {
	for name, test := range map[string]struct {
		reboot bool
		early  plans.State
		ran    []string
	}{
		"its program runs":         {false, plans.StateInProgress, []string{"slow one@1", "slow two@1"}},
		"the machine was rebooted": {true, plans.StatePaused, []string{"slow one@1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, _ := startThreeSteps(t, 1, 90*time.Second)
				if test.reboot {
					w.host.PowerOff()
				}
				w.stop()
				w.host.Restart()
				w.secret.annotate("true", "")
				w.start()
				time.Sleep(10 * time.Second)
				w.checkState(test.early)
				time.Sleep(10 * time.Minute)
				w.checkState(plans.StatePaused)
				w.checkRan(test.ran...)
				if got := w.secret.status().Checkpoint; got == nil || got.CompletedInstructions != len(test.ran) {
					t.Errorf("the checkpoint is %+v", got)
				}
				w.secret.annotate("", "")
				time.Sleep(3 * time.Minute)
				w.stop()
				w.checkState(plans.StateSucceeded)
				w.checkRan("slow one@1", "slow two@1", "slow three@1")
			})
		})
	}
}

// TestProgramOfAnEarlierAttemptOnFullDisk restarts the agent while a program runs in its unit, on a disk that takes neither journal nor
// interlock any more. The program goes on or is stopped as on any other disk: none of another attempt starts beside it, and no hub hears
// that it has ended while it runs.
func TestProgramOfAnEarlierAttemptOnFullDisk(t *testing.T) {
	for name, test := range map[string]struct {
		hub     func(*secret)
		running int32
		state   plans.State
	}{
		"the plan goes on": {func(*secret) {}, 1, plans.StateSucceeded},
		"the plan is pending again": {func(s *secret) {
			s.hub(func(data plans.SecretData) {
				data[plans.KeyPlanState], data[plans.KeyPlanRevision] = []byte(plans.StatePending), []byte("5")
			})
		}, 0, plans.StateSucceeded},
		"the plan is canceled": {func(s *secret) { s.annotate("", "true") }, 0, plans.StateCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.options.InterlockDirectory = "/agent/interlock"
				var running, most atomic.Int32
				w.host.Program("slow", func(ctx context.Context, _ run.Command) (run.Result, error) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					return run.Result{}, retry.Sleep(ctx, 5*time.Minute)
				})
				w.secret.deliver(threeSteps(), 10)
				w.start()
				time.Sleep(30 * time.Second)
				w.stop()
				w.host.FailWith(func(_, path string) error {
					return map[bool]error{true: syscall.ENOSPC}[path == activeFile || strings.HasSuffix(path, "/"+journal.FileName)]
				})
				test.hub(w.secret)
				w.start()
				time.Sleep(10 * time.Second)
				if running.Load() != test.running {
					t.Errorf("%d programs run after the restart, want %d", running.Load(), test.running)
				}
				w.host.FailWith(nil)
				time.Sleep(time.Hour)
				w.stop()
				if got := w.secret.status(); most.Load() != 1 || got.State != test.state {
					t.Errorf("%d programs ran at the same time, all were %v; got %+v", most.Load(), w.ran(), got)
				}
			})
		})
	}
}
