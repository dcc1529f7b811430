package planstatus

import (
	"encoding/json"
	"time"
)

// retryAnnotation, on a plan Secret, holds what is known of the attempts at a plan that failed. It is no part of the data, which agents
// may write.
const retryAnnotation = "rke.cattle.io/plan-retry"

const (
	// maxAttempts is how often a plan is tried before somebody has to look.
	maxAttempts = 10
	// firstDelay is the wait after the first failure; it doubles with each up to maxDelay.
	firstDelay = 15 * time.Second
	maxDelay   = 10 * time.Minute
)

// retry counts the attempts at one plan.
type retry struct {
	Checksum string `json:"checksum"`
	// Attempts that failed.
	Attempts int `json:"attempts"`
	// FailedAt is when the last failure was seen, by the hub's clock.
	FailedAt time.Time `json:"failedAt"`
	// Again is set once the plan is pending again after that failure.
	Again bool `json:"again,omitempty"`
}

// readRetry reads the annotation; what it says of another plan, or cannot be read, counts for nothing.
func readRetry(annotation, checksum string) retry {
	var known retry
	if err := json.Unmarshal([]byte(annotation), &known); err != nil || known.Checksum != checksum || known.Attempts < 0 {
		return retry{Checksum: checksum}
	}
	return known
}

// failed takes in that the plan is in the state of failure, and tells whether it is to be set pending again now.
func (r retry) failed(now time.Time) (_ retry, again bool) {
	if r.FailedAt.After(now) {
		// A clock that was set back must not make a machine wait for it to catch up.
		r.FailedAt = now.UTC().Truncate(time.Second)
	}
	if r.Attempts == 0 || r.Again {
		// This failure is a new one.
		r.Attempts, r.FailedAt, r.Again = r.Attempts+1, now.UTC().Truncate(time.Second), false
	}
	if r.exhausted() || now.Before(r.next()) {
		return r, false
	}
	r.Again = true
	return r, true
}

func (r retry) exhausted() bool { return r.Attempts >= maxAttempts }

// next is when the next attempt is due.
func (r retry) next() time.Time {
	delay := firstDelay
	for range min(r.Attempts, maxAttempts) - 1 {
		delay = min(2*delay, maxDelay)
	}
	return r.FailedAt.Add(delay)
}

func (r retry) encode() string {
	raw, err := json.Marshal(r)
	if err != nil {
		// No field of it can fail.
		return ""
	}
	return string(raw)
}
