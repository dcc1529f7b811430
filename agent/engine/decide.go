package engine

import (
	"time"

	"github.com/drover-dev/drover/plans"
)

const (
	// cooldown is between two tries of a plan where checksums decide; hubs count on it.
	cooldown = 30 * time.Second
	// settle is for how long after a report the source may still show what was before it.
	settle = 10 * time.Second
	// defaultTries is how often a delivery is tried where the hub sets no limit, before it is reported as failed. The hub may then
	// deliver it again.
	defaultTries = 3
)

// action is what to do with a plan now.
type action int

const (
	// rest means that there is nothing to apply; probes and periodic instructions run.
	rest action = iota
	// apply means to begin an attempt, or to go on with one.
	apply
	// report means that an outcome is not known to the source yet.
	report
	// pause and cancel mean that the hub has interrupted the plan, which it is to be told.
	pause
	cancel
	// block means that nothing may be executed and nothing written.
	block
)

// decision is what to do now, and why.
type decision struct {
	action action
	// begin identifies the attempt, for apply.
	begin begin
	// resume goes on with the attempt of the journal.
	resume bool
	// commit sets the state to in-progress first. The state is the one in from then, or pending where that is empty.
	commit bool
	from   plans.State
	// wait is after what time to decide again; 0 means not before something changes.
	wait time.Duration
	// final tells, for report, that the failure is the last one of its delivery.
	final bool
	// again reports what has been reported before.
	again  bool
	reason string
}

// decide tells what is to be done about a plan, from what the source holds and what the journal remembers; asked tells that someone at the
// machine wants a failed plan to be tried again now. It is pure.
func decide(s Snapshot, r record, attempts map[string]attempt, now time.Time, asked bool) decision {
	if len(s.Delivery.Plan) == 0 {
		return decision{reason: "no plan has been delivered yet"}
	}
	if s.Interrupt.Invalid != nil {
		return decision{action: block, reason: s.Interrupt.Invalid.Error()}
	}
	decideMode := decideChecksum
	if s.Status.State != "" {
		decideMode = decideState
	}
	d := decideMode(s, r, attempts, now, asked)
	switch {
	case s.Interrupt.Canceled:
		return decideCanceled(s, r, d)
	case s.Interrupt.Paused:
		return decidePaused(r, d)
	}
	return d
}

// decideCanceled lets an outcome that came before the cancellation be reported.
func decideCanceled(s Snapshot, r record, d decision) decision {
	const reason = "the hub has canceled the plan"
	over := d.action == report && (d.final || r.Succeeded)
	switch {
	case over:
		return d
	case terminal(s.Status.State):
		return decision{reason: "the plan's state is " + string(s.Status.State) + ", and it is canceled"}
	case s.Status.State == "" && !(r.is(s.target()) && r.unfinished()):
		return decision{reason: reason}
	}
	return decision{action: cancel, reason: reason}
}

// terminal tells whether nothing more is done for a plan of this state before the hub says so.
func terminal(state plans.State) bool {
	switch state {
	case "", plans.StatePending, plans.StateInProgress, plans.StatePaused:
		return false
	}
	return true
}

// decidePaused lets an outcome be reported before the plan is paused.
func decidePaused(r record, d decision) decision {
	switch {
	case d.action == cancel, d.action == rest && d.wait == 0, d.action == report && (r.Reported.IsZero() || d.final || r.Succeeded):
		return d
	}
	return decision{action: pause, reason: "the hub has paused the plan"}
}

// decideState follows plan-state: the hub writes pending, the agent the rest.
func decideState(s Snapshot, r record, attempts map[string]attempt, now time.Time, asked bool) decision {
	fresh := func(revision int, reason string) decision {
		b := firstTry(s, attempts)
		b.Revision = revision
		return decision{action: apply, begin: b, reason: reason}
	}
	switch s.Status.State {
	case plans.StatePending:
		return decidePending(s, r, fresh)
	case plans.StatePaused:
		d := decidePausedState(s, r, attempts, now, asked)
		if d.action == apply {
			d.commit, d.from = true, plans.StatePaused
		}
		return d
	case plans.StateFailed:
		if !asked {
			break
		}
		d := fresh(s.Status.Revision+1, "the plan has failed and is tried again, as someone asked for")
		d.commit, d.from = true, plans.StateFailed
		return d
	case plans.StateInProgress:
		if r.is(s.target()) && r.Revision == s.Status.Revision {
			return decideKnown(s, r, attempts, now, asked)
		}
		return fresh(s.Status.Revision, "the plan is in progress and the journal does not know it")
	}
	return decision{reason: "the plan's state is " + string(s.Status.State)}
}

// decidePending is for a delivery that the source does not know begun. The journal may know more: it is written at the same time.
func decidePending(s Snapshot, r record, fresh func(int, string) decision) decision {
	next := s.Status.Revision + 1
	if r.is(s.target()) && r.Revision == next {
		switch {
		case r.unfinished():
			return decision{action: apply, begin: r.begin, resume: true, commit: true, reason: "the plan is pending"}
		case r.Reported.IsZero() && !r.Canceled:
			return decision{action: report, final: r.lastTry(s.Delivery.MaxFailures), reason: "the outcome is not reported yet"}
		}
	}
	d := fresh(next, "the plan is pending")
	d.commit = true
	return d
}

// decidePausedState is for a plan that was paused and is not any more: it goes on as what it was.
func decidePausedState(s Snapshot, r record, attempts map[string]attempt, now time.Time, asked bool) decision {
	checkpoint := s.Status.Checkpoint
	s.Status.State = plans.StatePending
	begun := checkpoint != nil && checkpoint.ResumeState == plans.StateInProgress && checkpoint.Checksum == s.Delivery.Checksum()
	if begun || r.is(s.target()) && r.Revision == s.Status.Revision && r.unfinished() {
		s.Status.State = plans.StateInProgress
	}
	return decideState(s, r, attempts, now, asked)
}

// decideKnown is for a plan in progress that the journal has begun.
func decideKnown(s Snapshot, r record, attempts map[string]attempt, now time.Time, asked bool) decision {
	switch {
	case r.unfinished():
		return decision{action: apply, begin: r.begin, resume: true, reason: "the plan was interrupted"}
	case r.Canceled:
		return decision{action: cancel, reason: "the plan was canceled"}
	case r.Succeeded:
		return untilKnown(decision{action: report, reason: "the plan has succeeded"}, r, now)
	case r.lastTry(s.Delivery.MaxFailures):
		return untilKnown(decision{action: report, final: true, reason: "the plan has failed"}, r, now)
	}
	if wait := remaining(r.Ended, backoff(r.Tries), now); wait > 0 && !asked {
		return decision{action: report, wait: wait, reason: "the plan has failed and is tried again soon"}
	}
	return decision{action: apply, begin: retry(r, attempts), reason: "the plan has failed and is tried again"}
}

// untilKnown reports an outcome once more where the source still does not show it a while after the report: a hub that was restored from a
// backup has forgotten it.
func untilKnown(d decision, r record, now time.Time) decision {
	if !r.Reported.IsZero() {
		d.wait = remaining(r.Reported, settle, now)
		d.again = d.wait == 0
	}
	return d
}

// lastTry tells whether a failure of this attempt is the last one of its delivery, where plan-state decides.
func (r record) lastTry(maxFailures int) bool {
	return r.Final || r.Tries >= tries(maxFailures)
}

// decideChecksum follows applied-checksum and failed-checksum, for hubs and plans without plan-state. The journal comes first: what
// the source holds may be a moment old.
func decideChecksum(s Snapshot, r record, attempts map[string]attempt, now time.Time, asked bool) decision {
	checksum := s.Delivery.Checksum()
	known := r.is(s.target()) && r.Revision == 0
	failed := s.Status.FailedChecksum == checksum && s.Status.FailureCount > 0
	anew := decision{action: apply, begin: firstTry(s, attempts)}
	since, pause := s.Status.LastApplyTime, cooldown
	switch {
	case known && r.unfinished():
		return decision{action: apply, begin: r.begin, resume: true, reason: "the plan was interrupted"}
	case known && r.Canceled && !asked:
		return decision{reason: "the plan was canceled"}
	case known && r.Reported.IsZero() && !r.Canceled:
		return decision{action: report, final: true, reason: "the outcome is not reported yet"}
	case known && r.Succeeded:
		if s.Status.AppliedChecksum == checksum {
			return decision{reason: "the plan is applied"}
		}
		since, pause = r.Reported, settle
		anew.reason = "the hub forgot that the plan is applied"
	case known && r.Final && !asked:
		return decision{reason: "the plan cannot be applied"}
	case known:
		since, failed = r.Started, true
		s.Status.FailureCount = max(s.Status.FailureCount, r.FailuresBefore+1)
	case s.Status.AppliedChecksum == checksum && s.Local:
		return decision{reason: "the plan is applied"}
	case s.Status.AppliedChecksum == checksum:
		anew.reason = "the plan is reported as applied and the journal does not know it"
		return anew
	case !failed:
		anew.reason = "the plan is new"
		return anew
	}
	if failed {
		anew.reason = "the plan has failed and is tried again"
		if !asked && s.Delivery.MaxFailures != plans.Unlimited && s.Status.FailureCount >= s.Delivery.MaxFailures {
			return decision{reason: "the plan has failed as often as it may"}
		}
	}
	if wait := remaining(since, pause, now); wait > 0 && !(asked && failed) {
		return decision{wait: wait, reason: anew.reason + " soon"}
	}
	return anew
}

// firstTry is the first attempt of a delivery. Its number differs from that of any attempt that failed, and is that of an attempt that
// succeeded, so that steps that run once per attempt run again exactly when they should.
func firstTry(s Snapshot, attempts map[string]attempt) begin {
	checksum := s.Delivery.Checksum()
	b := begin{Checksum: checksum, UID: s.UID, Attempt: 1, Tries: 1, SuccessesBefore: s.Status.SuccessCount}
	if s.Status.FailedChecksum == checksum {
		b.FailuresBefore = s.Status.FailureCount
		b.Attempt = s.Status.FailureCount + 1
	} else if s.Status.State == plans.StateInProgress {
		b.Attempt = s.Status.FailureCount + 1
	}
	if last, found := attempts[checksum]; found {
		number := last.Number + 1
		if last.Succeeded {
			number = last.Number
		}
		b.Attempt = max(b.Attempt, number)
	}
	return b
}

// retry is one more attempt of the delivery that the record is of.
func retry(r record, attempts map[string]attempt) begin {
	b := r.begin
	b.Tries++
	b.Attempt = max(r.Attempt, attempts[r.Checksum].Number) + 1
	return b
}

func tries(maxFailures int) int {
	if maxFailures <= 0 {
		return defaultTries
	}
	return maxFailures
}

// backoff after so many tries: 5 s, 10 s, 20 s, then 30 s.
func backoff(tries int) time.Duration {
	return min(5*time.Second<<min(tries-1, 8), cooldown)
}

// remaining is how much of a pause is left. A beginning that lies in the future was noted before the clock was set back, or by someone
// whose zone is not known: it makes the pause no longer than it is, and one that lies farther ahead than that tells nothing at all.
func remaining(since time.Time, pause time.Duration, now time.Time) time.Duration {
	if since.IsZero() || since.Sub(now) > pause {
		return 0
	}
	return min(max(pause-now.Sub(since), 0), pause)
}
