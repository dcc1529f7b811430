package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// TestReportForgotten shows that B6 cannot happen: a hub that was restored from a backup of before the report is told again, by the same
// process, and nothing runs again.
func TestReportForgotten(t *testing.T) {
	tests := map[string]struct {
		command string
		want    []string
	}{
		"of a success": {"ok", []string{"in-progress/0/0", "succeeded/0/1", "succeeded/0/1"}},
		"of a failure": {"bad", []string{"in-progress/0/0", "failed/1/0", "failed/1/0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				checksum := w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("a", test.command, true)}}, 1)
				w.start()
				w.waitAMinute()
				w.secret.hub(func(data plans.SecretData) {
					for _, key := range plans.AgentKeys() {
						delete(data, key)
					}
					data[plans.KeyPlanState], data[plans.KeyPlanRevision] = []byte(plans.StateInProgress), []byte("1")
				})
				w.waitAMinute()
				w.stop()
				if diff := cmp.Diff(test.want, w.secret.history()); diff != "" {
					t.Error(diff)
				}
				if got := w.secret.status(); got.AppliedChecksum != checksum && got.FailedChecksum != checksum {
					t.Errorf("got %+v", got)
				}
				if len(w.ran()) != 1 {
					t.Errorf("ran %v", w.ran())
				}
			})
		})
	}
}

// TestOutcomeDroppedForAnotherPlan restores the hub, while it cannot be told of an outcome, to before that plan. The report is dropped for
// one about the older plan; when the plan is delivered again, its outcome is handed over again and the plan does not stay pending.
func TestOutcomeDroppedForAnotherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.longRunning("slow", time.Minute)
		w.secret.deliver(plans.Plan{Instructions: []plans.Instruction{once("older", "ok", false)}}, 1)
		w.start()
		w.waitAMinute()
		backup := w.secret.copy()
		newer := plans.Plan{Instructions: []plans.Instruction{once("newer", "slow", false)}}
		w.secret.deliver(newer, 3)
		time.Sleep(30 * time.Second)
		w.secret.setDown(errors.New("connection refused"))
		w.waitAMinute()
		w.secret.setDown(nil)
		w.secret.hub(func(plans.SecretData) { w.secret.data = backup })
		time.Sleep(time.Second)
		w.secret.deliver(newer, 3)
		time.Sleep(10 * time.Minute)
		w.stop()
		w.checkState(plans.StateSucceeded)
		w.checkRan("ok older@1", "slow newer@1", "slow newer@1")
	})
}

// superseded is a source that holds another plan for a moment whenever an outcome is reported, and delivers no snapshot about that.
type superseded struct {
	*secret
	left atomic.Int32
}

func (s *superseded) Update(ctx context.Context, uid, checksum string, change func(*plans.Status)) (source.Snapshot, error) {
	status := s.status()
	if change(&status); status.AppliedChecksum != "" && s.left.Add(-1) >= 0 {
		return source.Snapshot{}, source.ErrSuperseded
	}
	return s.secret.Update(ctx, uid, checksum, change)
}

// TestOutcomeDroppedWithoutASnapshot drops the report of a success twice. It is handed over again though nothing happens.
func TestOutcomeDroppedWithoutASnapshot(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(protocolOf(old), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				source := &superseded{secret: w.secret}
				source.left.Store(2)
				w.options.Source = source
				deliver := w.secret.deliver
				if old {
					deliver = w.secret.deliverOld
				}
				checksum := deliver(plans.Plan{Instructions: []plans.Instruction{once("one", "ok", false)}}, 1)
				w.start()
				time.Sleep(10 * time.Second)
				if got := w.secret.status(); got.AppliedChecksum != "" || source.left.Load() == 2 {
					t.Fatalf("the report was not dropped: %+v", got)
				}
				time.Sleep(5 * time.Minute)
				w.stop()
				if got := w.secret.status(); got.AppliedChecksum != checksum || got.SuccessCount != 1 {
					t.Errorf("got %+v", got)
				}
				w.checkRan("ok one@1")
			})
		})
	}
}

// TestProbesForgotten restores the hub from a backup whose probe statuses are older than what the agent has reported. The agent reports
// them again though nothing changes, once, and not before it has probed.
func TestProbesForgotten(t *testing.T) {
	for name, backup := range map[string]string{"none": "", "unhealthy": `{"well":{"failureCount":3}}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				newHealth(w)
				w.secret.deliver(plans.Plan{Probes: probes(30, "well")}, 1)
				restore := func() {
					w.secret.hub(func(data plans.SecretData) {
						if data[plans.KeyProbeStatuses] = []byte(backup); backup == "" {
							delete(data, plans.KeyProbeStatuses)
						}
					})
				}
				w.start()
				time.Sleep(10 * time.Second)
				restore()
				time.Sleep(10 * time.Second)
				if got := w.secret.status(); got.ProbeStatuses["well"].Healthy || got.State != plans.StateInProgress {
					t.Errorf("reported before the first probe: %+v", got)
				}
				w.waitAMinute()
				_, before := w.secret.counts()
				for restored := 1; restored <= 2; restored++ {
					restore()
					time.Sleep(time.Hour)
					synctest.Wait()
					want := map[string]plans.ProbeStatus{"well": {Healthy: true, SuccessCount: 1}}
					if diff := cmp.Diff(want, w.secret.status().ProbeStatuses); diff != "" {
						t.Error(diff)
					}
					if _, after := w.secret.counts(); after-before != restored {
						t.Errorf("%d writes after %d restores", after-before, restored)
					}
				}
				w.stop()
			})
		})
	}
}
