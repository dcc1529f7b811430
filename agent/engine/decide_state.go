package engine

import (
	"github.com/drover-dev/drover/plans"
)

// byState follows plan-state: the hub writes pending, the agent the rest.
//
//	plan-state       last attempt of the journal                 action
//	pending          none of the next revision                   apply as revision+1: commit in-progress
//	pending          next revision, unfinished                   apply: resume, commit in-progress
//	pending          next revision, ended, not reported          report
//	in-progress      none of this revision                       apply as this revision
//	in-progress      this revision, unfinished                   apply: resume
//	in-progress      this revision, canceled                     cancel
//	in-progress      this revision, succeeded                    report; again when not confirmed after reportGrace
//	in-progress      this revision, failed, tries left           report, wait for the back-off, then apply: next try
//	in-progress      this revision, failed for the last time     report as final; again when not confirmed after reportGrace
//	paused           begun before (or by its checkpoint)         as in-progress, committed from paused
//	paused           not begun                                   as pending, committed from paused
//	failed           any, and a retry was requested              apply as revision+1: commit from failed
//	any other state  any                                         none: the hub must deliver
func (d decider) byState() decision {
	switch d.Status.State {
	case plans.StatePending:
		return d.pending()
	case plans.StatePaused:
		return d.unpaused()
	case plans.StateFailed:
		if !d.retryRequested {
			break
		}
		by := d.firstTry(d.Status.Revision+1, "the plan has failed and is retried on request")
		by.commit, by.commitFrom = true, plans.StateFailed
		return by
	case plans.StateInProgress:
		if d.isLast() && d.last.Revision == d.Status.Revision {
			return d.inProgress()
		}
		return d.firstTry(d.Status.Revision, "the plan is in progress and the journal does not know it")
	}
	return decision{reason: "the plan's state is " + string(d.Status.State)}
}

// pending is for a delivery of which the source does not know that it has begun. The journal may know more: the hub may have been
// restored from a backup.
func (d decider) pending() decision {
	next := d.Status.Revision + 1
	if d.isLast() && d.last.Revision == next {
		switch {
		case d.last.Unfinished():
			return decision{action: actionApply, attempt: d.last.AttemptID, resume: true, commit: true, reason: "the plan is pending"}
		case d.last.Unreported():
			return decision{action: actionReport, final: lastTry(d.last, d.Delivery.MaxFailures), reason: "the outcome is not reported yet"}
		}
	}
	by := d.firstTry(next, "the plan is pending")
	by.commit = true
	return by
}

// unpaused is for a plan that is not paused any more and goes on from the state before.
func (d decider) unpaused() decision {
	checkpoint := d.Status.Checkpoint
	d.Status.State = plans.StatePending
	begun := checkpoint != nil && checkpoint.ResumeState == plans.StateInProgress && checkpoint.Checksum == d.Delivery.Checksum()
	if begun || d.isLast() && d.last.Revision == d.Status.Revision && d.last.Unfinished() {
		d.Status.State = plans.StateInProgress
	}
	by := d.byState()
	if by.action == actionApply {
		by.commit, by.commitFrom = true, plans.StatePaused
	}
	return by
}

// inProgress is for a plan in progress that the journal has begun.
func (d decider) inProgress() decision {
	switch {
	case d.last.Unfinished():
		return decision{action: actionApply, attempt: d.last.AttemptID, resume: true, reason: "the plan was interrupted"}
	case d.last.Canceled:
		return decision{action: actionCancel, reason: "the plan was canceled"}
	case d.last.Succeeded:
		return d.untilConfirmed(decision{action: actionReport, reason: "the plan has succeeded"})
	case lastTry(d.last, d.Delivery.MaxFailures):
		return d.untilConfirmed(decision{action: actionReport, final: true, reason: "the plan has failed"})
	}
	if wait := remaining(d.last.Ended, tryDelay(d.last.Tries), d.now); wait > 0 && !d.retryRequested {
		return decision{action: actionReport, wait: wait, reason: "the plan has failed and will be retried"}
	}
	return decision{action: actionApply, attempt: d.nextTry(), reason: "the plan has failed and is retried"}
}

// untilConfirmed reports an outcome again when the source does not show it reportGrace after the report: a hub that was restored from a
// backup has forgotten it.
func (d decider) untilConfirmed(by decision) decision {
	if !d.last.Reported.IsZero() {
		by.wait = remaining(d.last.Reported, reportGrace, d.now)
		by.resend = by.wait == 0
	}
	return by
}
