package plansecret

import (
	"encoding/json"
	"time"
)

const (
	// maxAttempts is how often a plan is attempted before a user has to intervene.
	maxAttempts = 10
	// firstDelay is the delay after the first failure. It doubles with each up to maxDelay.
	firstDelay = 15 * time.Second
	maxDelay   = 10 * time.Minute
)

// retry records the attempts at one plan, as the value of rkev1.PlanRetryAnnotation.
type retry struct {
	// Checksum of the plan.
	Checksum string `json:"checksum"`
	// Attempts that failed.
	Attempts int `json:"attempts"`
	// FailedAt is when the last failure was seen, by the hub's clock.
	FailedAt time.Time `json:"failedAt"`
	// Pending is set once the plan was set pending after that failure.
	Pending bool `json:"again,omitempty"`
}

// readRetry reads the annotation. A record of another plan, or one that cannot be read, counts as none.
func readRetry(annotation, checksum string) retry {
	var known retry
	if err := json.Unmarshal([]byte(annotation), &known); err != nil || known.Checksum != checksum || known.Attempts < 0 {
		return retry{Checksum: checksum}
	}
	return known
}

// failed records that the plan is in state failed, and reports whether it is to be set pending now.
func (r retry) failed(now time.Time) (_ retry, retryNow bool) {
	if r.FailedAt.After(now) {
		// The clock was set back: no machine waits for it to catch up.
		r.FailedAt = now.UTC().Truncate(time.Second)
	}
	if r.Attempts == 0 || r.Pending {
		// This is another failure than the recorded one.
		r.Attempts, r.FailedAt, r.Pending = r.Attempts+1, now.UTC().Truncate(time.Second), false
	}
	if r.exhausted() || now.Before(r.next()) {
		return r, false
	}
	r.Pending = true
	return r, true
}

func (r retry) exhausted() bool { return r.Attempts >= maxAttempts }

// next is when the next attempt is due.
func (r retry) next() time.Time {
	return r.FailedAt.Add(min(firstDelay<<(min(max(r.Attempts, 1), maxAttempts)-1), maxDelay))
}

func (r retry) encode() string {
	raw, _ := json.Marshal(r) // a struct of these types cannot fail
	return string(raw)
}
