package plandelivery

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// TestAgentWithoutStates: the hub does not wait for states of an agent that reports checksums only, whatever the agent before it has
// reported, and believes those of an agent that keeps them.
func TestAgentWithoutStates(t *testing.T) {
	plan := []byte(`{"files":[]}`)
	sum, earlier := plans.Checksum(plan), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	later := earlier.Add(time.Hour)
	// What any agent reports of an outcome, beside the state.
	succeeded := func(s *plans.Status) {
		s.AppliedChecksum, s.FailedChecksum, s.FailureCount, s.SuccessCount, s.LastApplyTime = sum, "", 0, s.SuccessCount+1, later
	}
	failed := func(s *plans.Status) {
		s.FailedChecksum, s.FailureCount, s.SuccessCount, s.LastApplyTime = sum, s.FailureCount+1, 0, later
	}
	for name, tc := range map[string]struct {
		state  plans.State
		before string // the checksum that was applied before
		report func(*plans.Status)
		want   rollout.Progress
		kept   bool
	}{
		"applies a plan": {state: plans.StatePending, before: "other", report: succeeded, want: rollout.ProgressApplied},
		"applies a plan that was applied before": {state: plans.StatePending, before: sum, report: succeeded,
			want: rollout.ProgressApplied},
		"fails": {state: plans.StatePending, before: "other", report: failed, want: rollout.ProgressFailed},
		"goes on with a plan": {state: plans.StateInProgress, before: "other", report: succeeded,
			want: rollout.ProgressApplied},
		"goes on with a plan that was applied before": {state: plans.StateInProgress, before: sum, report: succeeded,
			want: rollout.ProgressApplied},
		"goes on with a plan and fails": {state: plans.StateInProgress, before: "other", report: failed, want: rollout.ProgressFailed},
		"goes on with a paused plan":    {state: plans.StatePaused, before: "other", report: succeeded, want: rollout.ProgressApplied},
		"applies a plan again when it starts": {state: plans.StateSucceeded, before: sum, report: succeeded,
			want: rollout.ProgressApplied},

		"keeps states, begins": {state: plans.StatePending, before: "other", kept: true, want: rollout.ProgressApplying,
			report: func(s *plans.Status) { s.State, s.Revision = plans.StateInProgress, s.Revision+1 }},
		"keeps states, retries": {state: plans.StateInProgress, before: "other", kept: true, want: rollout.ProgressApplying,
			report: func(s *plans.Status) { s.FailureCount, s.SuccessCount, s.LastApplyTime = 1, 0, later }},
		"keeps states, succeeds": {state: plans.StateInProgress, before: "other", kept: true, want: rollout.ProgressApplied,
			report: func(s *plans.Status) { succeeded(s); s.State = plans.StateSucceeded }},
		"keeps states, reports probes": {state: plans.StatePending, before: sum, kept: true, want: rollout.ProgressPending,
			report: func(s *plans.Status) { s.ProbeStatuses = map[string]plans.ProbeStatus{"etcd": {Healthy: true}} }},
		// rancher-system-agent with plan-state does this a moment after a failure.
		"keeps states, overwrites a failure": {state: plans.StateFailed, before: "other", kept: true, want: rollout.ProgressFailed,
			report: func(s *plans.Status) { s.AppliedChecksum, s.FailureCount = sum, 0 }},
		"keeps states, and knows no pause": {state: plans.StatePaused, before: "other", kept: true, want: rollout.ProgressPaused,
			report: func(s *plans.Status) { s.AppliedChecksum, s.FailureCount = sum, 0 }},
	} {
		current := plans.SecretData{plans.KeyPlan: plan}
		status := plans.Status{State: tc.state, Revision: 7, AppliedChecksum: tc.before, SuccessCount: 3, LastApplyTime: earlier,
			Agent: &plans.AgentStatus{Version: "v1.0.0"}, Progress: &plans.Progress{Phase: plans.PhaseRunning}}
		if err := status.WriteTo(current); err != nil {
			t.Fatal(err)
		}
		sent := maps.Clone(current)
		tc.report(&status)
		if err := status.WriteTo(sent); err != nil {
			t.Fatal(err)
		}
		changes := map[string]*[]byte{}
		for _, key := range changedKeys(current, sent, func(a, b []byte) bool { return string(a) == string(b) }) {
			changes[key] = valueOf(sent, key)
		}
		dropStates(current, changes)
		written := with(maps.Clone(current), changes)
		report, err := rollout.ReadReport(written)
		if err != nil || report.Progress != tc.want {
			t.Errorf("%s: %q, want %q (%v)", name, report.Progress, tc.want, err)
		}
		if tc.kept {
			if diff := cmp.Diff(sent, written); diff != "" {
				t.Errorf("%s: (-sent +written):\n%s", name, diff)
			}
		} else if report.Status.Revision != 0 || report.Status.Agent != nil || report.Status.Progress != nil {
			t.Errorf("%s: %+v is left", name, report.Status)
		}
	}
}
