package engine

import (
	"github.com/drover-dev/drover/plans"
)

// byChecksum follows applied-checksum and failed-checksum, for hubs and plans without plan-state. The journal comes first: what the source
// holds may be outdated by a moment. The first row that holds decides.
//
//	last attempt at this plan                 source says of this plan    action
//	unfinished                                any                         apply: resume
//	canceled                                  any                         none, until a retry is requested
//	ended, not reported                       any                         report
//	succeeded                                 applied                     none
//	succeeded                                 not applied                 apply again, reportGrace after the report
//	failed and cannot be cured                any                         none, until a retry is requested
//	failed                                    any                         as failed below
//	none                                      applied, a local source     none, unless another plan was attempted since
//	none                                      applied                     apply: the journal cannot prove it
//	none                                      neither applied nor failed  apply
//	none                                      failed max-failures times   none, until a retry is requested
//	none                                      failed                      apply retryInterval after the last try began
func (d decider) byChecksum() decision {
	checksum := d.Delivery.Checksum()
	known := d.isLast() && d.last.Revision == 0
	failures := d.Status.FailureCount
	failed := d.Status.FailedChecksum == checksum && failures > 0
	since, pause := d.Status.LastApplyTime, retryInterval
	later, again := "the plan has failed and will be retried", "the plan has failed and is retried"
	switch {
	case known && d.last.Unfinished():
		return decision{action: actionApply, attempt: d.last.AttemptID, resume: true, reason: "the plan was interrupted"}
	case known && d.last.Canceled && !d.retryRequested:
		return decision{reason: "the plan was canceled"}
	case known && d.last.Unreported():
		return decision{action: actionReport, final: true, reason: "the outcome is not reported yet"}
	case known && d.last.Succeeded:
		if d.Status.AppliedChecksum == checksum {
			return decision{reason: "the plan is applied"}
		}
		since, pause = d.last.Reported, reportGrace
		later, again = "the plan is applied and the hub does not show it yet", "the hub does not show the plan as applied"
	case known && d.last.Final && !d.retryRequested:
		return decision{reason: "the plan cannot be applied"}
	case known:
		since, failed = d.last.Started, true
		failures = max(failures, d.last.FailuresBefore+1)
	case d.Status.AppliedChecksum == checksum && d.Local && d.otherAgentApplied():
		return decision{reason: "the plan is applied"}
	case d.Status.AppliedChecksum == checksum:
		return d.firstTry(0, "the plan is reported as applied and the journal does not know it")
	case !failed:
		return d.firstTry(0, "the plan is new")
	}
	if failed && !d.retryRequested && d.Delivery.MaxFailures != plans.Unlimited && failures >= d.Delivery.MaxFailures {
		return decision{reason: "the plan has failed max-failures times"}
	}
	if wait := remaining(since, pause, d.now); wait > 0 && !(d.retryRequested && failed) {
		return decision{wait: wait, reason: later}
	}
	return d.firstTry(0, again)
}

// otherAgentApplied reports whether what a local source holds as applied was applied after the last attempt of the journal, by an agent
// without this journal. Otherwise that attempt was at another plan and came later: it has changed the machine, however it ended.
func (d decider) otherAgentApplied() bool {
	switch {
	case d.last.Checksum == "": // a failure of another plan was recorded by this agent, and its journal is lost
		return d.Status.FailedChecksum == "" || d.Status.FailedChecksum == d.Status.AppliedChecksum
	case d.last.Unfinished(), d.last.Unreported(), d.last.Canceled:
		return false
	}
	// The source held the outcome of the last attempt and does not hold it any more. The legacy agent drops failures when it writes.
	return d.last.Succeeded || d.Status.FailedChecksum == ""
}
