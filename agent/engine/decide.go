package engine

import (
	"cmp"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// retryInterval is between two tries of a plan in the checksum protocol, counted from their beginnings; hubs rely on it.
	retryInterval = 30 * time.Second
	// reportGrace is for how long after a report the source may still show what was before it.
	reportGrace = 10 * time.Second
	// defaultTries is how often a delivery is tried where the hub sets no limit, before it is reported as failed. The hub may then
	// deliver it again.
	defaultTries = 3
)

// action is what to do with a plan now.
type action int

const (
	// actionNone means that there is nothing to apply; probes and periodic instructions run.
	actionNone action = iota
	// actionApply means to begin an attempt, or to go on with one.
	actionApply
	// actionReport means that the source does not know an outcome yet.
	actionReport
	// actionPause and actionCancel mean that the hub has interrupted the plan, which is to be confirmed.
	actionPause
	actionCancel
	// actionRefuse means that nothing may be executed and nothing written.
	actionRefuse
)

// decision is what to do now, and why.
type decision struct {
	action action
	// attempt identifies the attempt, for actionApply.
	attempt journal.AttemptID
	// resume goes on with the attempt of the journal.
	resume bool
	// commit sets the plan-state to in-progress first, from commitFrom, or from pending where that is empty.
	commit     bool
	commitFrom plans.State
	// wait is after what time to decide again; 0 means not before something changes.
	wait time.Duration
	// final says, for actionReport, that the failure is the last one of its delivery.
	final bool
	// resend reports again what was reported before.
	resend bool
	// reason is a phrase for people.
	reason string
}

// beginFrom is the plan-state that the commit replaces; empty without a commit.
func (d decision) beginFrom() plans.State {
	if d.commit {
		return cmp.Or(d.commitFrom, plans.StatePending)
	}
	return ""
}

// phase is the decision for State, given the snapshot it was made for.
func (d decision) phase(s source.Snapshot) Phase {
	switch {
	case d.action == actionRefuse:
		return PhaseRefusing
	case d.action == actionPause:
		return PhasePaused
	case d.action == actionCancel, s.Interrupt.Canceled, s.Status.State == plans.StateCanceled, s.Status.State == plans.StateCancelled:
		return PhaseCanceled
	case d.action == actionApply:
		return PhaseApplying
	case d.wait > 0:
		return PhaseWaiting
	}
	return PhaseIdle
}

// decider is what a decision depends on.
type decider struct {
	source.Snapshot
	// last is the last attempt of the journal, attempts the last attempt of each plan by its checksum.
	last     journal.Record
	attempts map[string]journal.LastAttempt
	now      time.Time
	// retryRequested says that somebody at the machine has requested a retry of a failed plan.
	retryRequested bool
}

// decide says what is to be done about a plan, from what the source holds and what the journal remembers. It is pure.
//
// An interrupt of the hub comes after what the protocol says, so that an outcome from before it is still reported:
//
//	annotation  action
//	invalid     refuse
//	canceled    report an outcome that is final; none when plan-state is terminal; else cancel
//	paused      report an outcome that is new or final; none when there is nothing to do; else pause
func (d decider) decide() decision {
	if len(d.Delivery.Plan) == 0 {
		return decision{reason: "no plan has been delivered yet"}
	}
	if d.Interrupt.Invalid != nil {
		return decision{action: actionRefuse, reason: d.Interrupt.Invalid.Error()}
	}
	var by decision
	if d.Status.State != "" {
		by = d.byState()
	} else {
		by = d.byChecksum()
	}
	switch {
	case d.Interrupt.Canceled:
		return d.canceled(by)
	case d.Interrupt.Paused:
		return d.paused(by)
	}
	return by
}

// canceled lets an outcome from before the cancellation be reported.
func (d decider) canceled(by decision) decision {
	const reason = "the hub has canceled the plan"
	switch {
	case by.action == actionReport && (by.final || d.last.Succeeded):
		return by
	case d.Status.State.Terminal():
		return decision{reason: "the plan is canceled, and its state is " + string(d.Status.State)}
	case d.Status.State == "" && !(d.isLast() && d.last.Unfinished()):
		return decision{reason: reason}
	}
	return decision{action: actionCancel, reason: reason}
}

// paused lets an outcome be reported before the plan is paused.
func (d decider) paused(by decision) decision {
	switch {
	case by.action == actionCancel, by.action == actionNone && by.wait == 0,
		by.action == actionReport && (d.last.Reported.IsZero() || by.final || d.last.Succeeded):
		return by
	}
	return decision{action: actionPause, reason: "the hub has paused the plan"}
}

// isLast reports whether the last attempt was at the plan that the source holds.
func (d decider) isLast() bool {
	return d.last.Is(d.PlanID())
}

// firstTry is the first attempt of a delivery. Its number differs from that of any attempt that failed, and is that of an attempt that
// succeeded, so that steps that run once per attempt run again exactly when they should.
func (d decider) firstTry(revision int, reason string) decision {
	checksum := d.Delivery.Checksum()
	a := journal.AttemptID{Checksum: checksum, UID: d.UID, Revision: revision, Attempt: 1, Tries: 1, SuccessesBefore: d.Status.SuccessCount}
	if d.Status.FailedChecksum == checksum {
		a.FailuresBefore = d.Status.FailureCount
		a.Attempt = d.Status.FailureCount + 1
	} else if d.Status.State == plans.StateInProgress {
		a.Attempt = d.Status.FailureCount + 1
	}
	if last, found := d.attempts[checksum]; found {
		number := last.Number + 1
		if last.Succeeded {
			number = last.Number
		}
		a.Attempt = max(a.Attempt, number)
	}
	return decision{action: actionApply, attempt: a, reason: reason}
}

// nextTry is one more attempt of the delivery of the last one.
func (d decider) nextTry() journal.AttemptID {
	a := d.last.AttemptID
	a.Tries++
	a.Attempt = max(d.last.Attempt, d.attempts[d.last.Checksum].Number) + 1
	return a
}

// lastTry reports whether a failure of this attempt is the last one of its delivery, in the plan-state protocol. maxFailures is
// plans.Delivery.MaxFailures.
func lastTry(r journal.Record, maxFailures int) bool {
	if maxFailures <= 0 {
		maxFailures = defaultTries
	}
	return r.Final || r.Tries >= maxFailures
}

// tryDelay is between two tries in the plan-state protocol: 5 s, 10 s, 20 s, then 30 s.
func tryDelay(tries int) time.Duration {
	return retry.Exponential(tries, 5*time.Second, retryInterval)
}

// remaining is how much of a pause is left. A beginning in the future was noted before the clock was set back, or by another machine in an
// unknown zone: it makes the pause no longer, and one that is ahead by more than the pause does not count.
func remaining(since time.Time, pause time.Duration, now time.Time) time.Duration {
	if since.IsZero() || since.Sub(now) > pause {
		return 0
	}
	return min(max(pause-now.Sub(since), 0), pause)
}
