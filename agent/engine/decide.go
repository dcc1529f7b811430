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
)

// decision is what to do now, and why.
type decision struct {
	action action
	// begin identifies the attempt, for apply.
	begin begin
	// resume goes on with the attempt of the journal.
	resume bool
	// commit sets the state to in-progress first.
	commit bool
	// wait is after what time to decide again; 0 means not before something changes.
	wait time.Duration
	// final tells, for report, that the failure is the last one of its delivery.
	final  bool
	reason string
}

// decide tells what is to be done about a plan, from what the source holds and what the journal remembers. It is pure.
func decide(s Snapshot, r record, attempts map[string]attempt, now time.Time) decision {
	switch {
	case len(s.Delivery.Plan) == 0:
		return decision{reason: "no plan has been delivered yet"}
	case s.Status.State != "":
		return decideState(s, r, attempts, now)
	default:
		return decideChecksum(s, r, attempts, now)
	}
}

// decideState follows plan-state: the hub writes pending, the agent the rest.
func decideState(s Snapshot, r record, attempts map[string]attempt, now time.Time) decision {
	fresh := func(revision int) begin {
		b := firstTry(s, attempts)
		b.Revision = revision
		return b
	}
	switch s.Status.State {
	case plans.StatePending:
		return decision{action: apply, begin: fresh(s.Status.Revision + 1), commit: true, reason: "the plan is pending"}
	case plans.StateInProgress:
	default:
		return decision{reason: "the plan's state is " + string(s.Status.State)}
	}
	if !r.is(s.target()) || r.Revision != s.Status.Revision {
		return decision{action: apply, begin: fresh(s.Status.Revision), reason: "the plan is in progress and the journal does not know it"}
	}
	switch {
	case r.unfinished():
		return decision{action: apply, begin: r.begin, resume: true, reason: "the plan was interrupted"}
	case r.Succeeded:
		return decision{action: report, reason: "the plan has succeeded"}
	case r.Final || r.Tries >= tries(s.Delivery.MaxFailures):
		return decision{action: report, final: true, reason: "the plan has failed"}
	}
	wait := remaining(r.Ended, backoff(r.Tries), now)
	if wait > 0 {
		return decision{action: report, wait: wait, reason: "the plan has failed and is tried again soon"}
	}
	return decision{action: apply, begin: retry(r, attempts), reason: "the plan has failed and is tried again"}
}

// decideChecksum follows applied-checksum and failed-checksum, for hubs and plans without plan-state. The journal comes first: what
// the source holds may be a moment old.
func decideChecksum(s Snapshot, r record, attempts map[string]attempt, now time.Time) decision {
	checksum := s.Delivery.Checksum()
	known := r.is(s.target()) && r.Revision == 0
	failed := s.Status.FailedChecksum == checksum && s.Status.FailureCount > 0
	anew := decision{action: apply, begin: firstTry(s, attempts)}
	since, pause := s.Status.LastApplyTime, cooldown
	switch {
	case known && r.unfinished():
		return decision{action: apply, begin: r.begin, resume: true, reason: "the plan was interrupted"}
	case known && r.Reported.IsZero():
		return decision{action: report, final: true, reason: "the outcome is not reported yet"}
	case known && r.Succeeded:
		if s.Status.AppliedChecksum == checksum {
			return decision{reason: "the plan is applied"}
		}
		since, pause = r.Reported, settle
		anew.reason = "the hub forgot that the plan is applied"
	case known && r.Final:
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
		if s.Delivery.MaxFailures != plans.Unlimited && s.Status.FailureCount >= s.Delivery.MaxFailures {
			return decision{reason: "the plan has failed as often as it may"}
		}
	}
	if wait := remaining(since, pause, now); wait > 0 {
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
