package engine

import (
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
	"github.com/google/go-cmp/cmp"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	raw := []byte("{}")
	sum := plans.Checksum(raw)
	snapshot := func(maxFailures int, status plans.Status) source.Snapshot {
		return source.Snapshot{UID: "u", Delivery: plans.Delivery{Plan: raw, MaxFailures: maxFailures}, Status: status}
	}
	local := func(status plans.Status) source.Snapshot {
		s := snapshot(-1, status)
		s.Local = true
		return s
	}
	first := journal.AttemptID{Checksum: sum, UID: "u", Attempt: 1, Tries: 1}
	other := journal.AttemptID{Checksum: "other", UID: "u", Attempt: 1, Tries: 1}
	again := decision{action: actionApply, attempt: first, reason: "the plan is reported as applied and the journal does not know it"}
	with := func(a journal.AttemptID, change func(*journal.AttemptID)) journal.AttemptID { change(&a); return a }
	tests := map[string]struct {
		snapshot source.Snapshot
		record   journal.Record
		attempts map[string]journal.LastAttempt
		want     decision
	}{
		"no plan": {want: decision{reason: "no plan has been delivered yet"}},
		"pending": {
			snapshot: snapshot(-1, plans.Status{State: plans.StatePending, Revision: 4}),
			want: decision{action: actionApply, commit: true, attempt: with(first, func(a *journal.AttemptID) { a.Revision = 5 }),
				reason: "the plan is pending"},
		},
		"pending again after a failure": {
			snapshot: snapshot(-1, plans.Status{State: plans.StatePending, Revision: 1, FailedChecksum: sum, FailureCount: 3}),
			attempts: map[string]journal.LastAttempt{sum: {Number: 7}},
			want: decision{action: actionApply, commit: true, reason: "the plan is pending",
				attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt, a.FailuresBefore = 2, 8, 3 })},
		},
		"pending again, and the journal is lost": {
			snapshot: snapshot(-1, plans.Status{State: plans.StatePending, FailedChecksum: sum, FailureCount: 3}),
			want: decision{action: actionApply, commit: true, reason: "the plan is pending",
				attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt, a.FailuresBefore = 1, 4, 3 })},
		},
		"pending again after a success": {
			snapshot: snapshot(-1, plans.Status{State: plans.StatePending, Revision: 1, AppliedChecksum: sum, SuccessCount: 2}),
			attempts: map[string]journal.LastAttempt{sum: {Number: 2, Succeeded: true}},
			want: decision{action: actionApply, commit: true, reason: "the plan is pending",
				attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt, a.SuccessesBefore = 2, 2, 2 })},
		},
		"in progress, begun by this journal": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateInProgress, Revision: 2}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt = 2, 3 })},
			want: decision{action: actionApply, resume: true, attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt = 2, 3 }),
				reason: "the plan was interrupted"},
		},
		"in progress, and the crash came before the journal": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateInProgress, Revision: 3}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision = 2 }), Ended: ago(time.Hour)},
			attempts: map[string]journal.LastAttempt{sum: {Number: 1}},
			want: decision{action: actionApply, attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt = 3, 2 }),
				reason: "the plan is in progress and the journal does not know it"},
		},
		"in progress, begun by another agent": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateInProgress, Revision: 3, FailureCount: 2}),
			want: decision{action: actionApply, attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Attempt = 3, 3 }),
				reason: "the plan is in progress and the journal does not know it"},
		},
		"succeeded and not reported": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record: journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision = 1 }), Ended: ago(time.Hour),
				Result: journal.Result{Succeeded: true}},
			want: decision{action: actionReport, reason: "the plan has succeeded"},
		},
		"failed the first time of three": {
			snapshot: snapshot(3, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision = 1 }), Ended: ago(2 * time.Second)},
			want:     decision{action: actionReport, wait: 3 * time.Second, reason: "the plan has failed and will be retried"},
		},
		"the pause is over": {
			snapshot: snapshot(3, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record: journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision, a.Tries, a.Attempt = 1, 2, 5 }),
				Ended: ago(10 * time.Second)},
			want: decision{action: actionApply, attempt: with(first, func(a *journal.AttemptID) { a.Revision, a.Tries, a.Attempt = 1, 3, 6 }),
				reason: "the plan has failed and is retried"},
		},
		"failed as often as it may": {
			snapshot: snapshot(3, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision, a.Tries = 1, 3 }), Ended: ago(time.Hour)},
			want:     decision{action: actionReport, final: true, reason: "the plan has failed"},
		},
		"failed for good": {
			snapshot: snapshot(3, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record: journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision = 1 }), Ended: ago(0),
				Result: journal.Result{Final: true}},
			want: decision{action: actionReport, final: true, reason: "the plan has failed"},
		},
		"no limit means a few tries": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateInProgress, Revision: 1}),
			record: journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision, a.Tries = 1, defaultTries }),
				Ended: ago(time.Hour)},
			want: decision{action: actionReport, final: true, reason: "the plan has failed"},
		},
		"failed stays failed": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateFailed, Revision: 1, FailedChecksum: sum, FailureCount: 1}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Revision = 1 }), Ended: ago(time.Hour)},
			want:     decision{reason: "the plan's state is failed"},
		},
		"succeeded is not applied by another agent's machine": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateSucceeded, Revision: 1}),
			want:     decision{reason: "the plan's state is succeeded"},
		},
		"canceled": {
			snapshot: snapshot(-1, plans.Status{State: plans.StateCancelled}),
			want:     decision{reason: "the plan's state is cancelled"},
		},

		"checksum: new": {
			snapshot: snapshot(-1, plans.Status{AppliedChecksum: "other", SuccessCount: 4}),
			want: decision{action: actionApply, attempt: with(first, func(a *journal.AttemptID) { a.SuccessesBefore = 4 }),
				reason: "the plan is new"},
		},
		"checksum: applied and known": {
			snapshot: snapshot(-1, plans.Status{AppliedChecksum: sum}),
			record:   journal.Record{AttemptID: first, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true}, Reported: ago(time.Hour)},
			want:     decision{reason: "the plan is applied"},
		},
		"checksum: applied and not known": {
			snapshot: snapshot(-1, plans.Status{AppliedChecksum: sum}),
			want:     again,
		},
		"checksum: applied to the secret before this one": {
			snapshot: snapshot(-1, plans.Status{AppliedChecksum: sum}),
			record: journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.UID = "old" }), Ended: ago(time.Hour),
				Result: journal.Result{Succeeded: true}, Reported: ago(time.Hour)},
			attempts: map[string]journal.LastAttempt{sum: {Number: 1, Succeeded: true}},
			want:     again,
		},
		"checksum: interrupted": {
			snapshot: snapshot(-1, plans.Status{}),
			record:   journal.Record{AttemptID: with(first, func(a *journal.AttemptID) { a.Attempt = 2 })},
			want: decision{action: actionApply, resume: true, attempt: with(first, func(a *journal.AttemptID) { a.Attempt = 2 }),
				reason: "the plan was interrupted"},
		},
		"checksum: not reported": {
			snapshot: snapshot(-1, plans.Status{}),
			record:   journal.Record{AttemptID: first, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true}},
			want:     decision{action: actionReport, final: true, reason: "the outcome is not reported yet"},
		},
		"checksum: reported a moment ago": {
			snapshot: snapshot(-1, plans.Status{}),
			record: journal.Record{AttemptID: first, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true},
				Reported: ago(4 * time.Second)},
			want: decision{wait: 6 * time.Second, reason: "the plan is applied and the hub does not show it yet"},
		},
		"checksum: blanked by the hub": {
			snapshot: snapshot(-1, plans.Status{}),
			record:   journal.Record{AttemptID: first, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true}, Reported: ago(time.Hour)},
			want:     decision{action: actionApply, attempt: first, reason: "the hub does not show the plan as applied"},
		},
		"checksum: cooling down": {
			snapshot: snapshot(-1, plans.Status{FailedChecksum: sum, FailureCount: 2, LastApplyTime: ago(12 * time.Second)}),
			want:     decision{wait: 18 * time.Second, reason: "the plan has failed and will be retried"},
		},
		"checksum: cooling down, and the clock was set back": {
			snapshot: snapshot(-1, plans.Status{FailedChecksum: sum, FailureCount: 2, LastApplyTime: now.Add(20 * time.Second)}),
			want:     decision{wait: 30 * time.Second, reason: "the plan has failed and will be retried"},
		},
		"checksum: the secret does not show the failure yet": {
			snapshot: snapshot(-1, plans.Status{}),
			record:   journal.Record{AttemptID: first, Started: ago(10 * time.Second), Ended: ago(time.Second), Reported: ago(time.Second)},
			want:     decision{wait: 20 * time.Second, reason: "the plan has failed and will be retried"},
		},
		"checksum: retried": {
			snapshot: snapshot(3, plans.Status{FailedChecksum: sum, FailureCount: 2, LastApplyTime: ago(31 * time.Second)}),
			attempts: map[string]journal.LastAttempt{sum: {Number: 2}},
			want: decision{action: actionApply, attempt: with(first, func(a *journal.AttemptID) { a.Attempt, a.FailuresBefore = 3, 2 }),
				reason: "the plan has failed and is retried"},
		},
		"checksum: failed as often as it may": {
			snapshot: snapshot(2, plans.Status{FailedChecksum: sum, FailureCount: 2, LastApplyTime: ago(time.Hour)}),
			want:     decision{reason: "the plan has failed max-failures times"},
		},
		"checksum: another plan failed": {
			snapshot: snapshot(1, plans.Status{FailedChecksum: "other", FailureCount: 9, LastApplyTime: ago(0)}),
			want:     decision{action: actionApply, attempt: first, reason: "the plan is new"},
		},
		"checksum: cannot be applied": {
			snapshot: snapshot(-1, plans.Status{FailedChecksum: sum, FailureCount: 1}),
			record:   journal.Record{AttemptID: first, Ended: ago(time.Hour), Result: journal.Result{Final: true}, Reported: ago(time.Hour)},
			want:     decision{reason: "the plan cannot be applied"},
		},
		"local: applied by another agent": {
			snapshot: local(plans.Status{AppliedChecksum: sum}),
			want:     decision{reason: "the plan is applied"},
		},
		"local: another plan was interrupted since": {
			snapshot: local(plans.Status{AppliedChecksum: sum}),
			record:   journal.Record{AttemptID: other},
			want:     again,
		},
		"local: another plan has succeeded since and is not reported": {
			snapshot: local(plans.Status{AppliedChecksum: sum}),
			record:   journal.Record{AttemptID: other, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true}},
			want:     again,
		},
		"local: another agent applied the plan after another plan": {
			snapshot: local(plans.Status{AppliedChecksum: sum}),
			record: journal.Record{AttemptID: other, Ended: ago(time.Hour), Result: journal.Result{Succeeded: true},
				Reported: ago(time.Hour)},
			want: decision{reason: "the plan is applied"},
		},
		"local: another plan has failed since": {
			snapshot: local(plans.Status{AppliedChecksum: sum, FailedChecksum: "other", FailureCount: 1}),
			record:   journal.Record{AttemptID: other, Ended: ago(time.Hour), Reported: ago(time.Hour)},
			want:     again,
		},
		"local: another plan has failed since, and the journal is lost": {
			snapshot: local(plans.Status{AppliedChecksum: sum, FailedChecksum: "other", FailureCount: 1}),
			want:     again,
		},
		"local: another agent dropped the failure of another plan": {
			snapshot: local(plans.Status{AppliedChecksum: sum}),
			record:   journal.Record{AttemptID: other, Ended: ago(time.Hour), Reported: ago(time.Hour)},
			want:     decision{reason: "the plan is applied"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decider{Snapshot: test.snapshot, last: test.record, attempts: test.attempts, now: now}.decide()
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
