package tunnel

import (
	"math/rand/v2"
	"time"

	"github.com/drover-dev/drover/agent/retry"
)

const (
	initialDelay = time.Second
	maxDelay     = 5 * time.Minute
	// stableTime is how long a session must last to reset the backoff. It must also last longer than the delay before it, so that a hub that
	// accepts all agents and then fails is not overloaded.
	stableTime = 10 * time.Second
	// quickAttempts is how many attempts in a row may lead to a replica that already has a session before the delay grows. Which replica a
	// load balancer chooses is chance; where it always chooses the same one for an agent, there is no use in more.
	quickAttempts = 10
	// maxJitter bounds what is added to a Retry-After, which all agents may have received at the same time.
	maxJitter = 30 * time.Second
)

// backoff is an exponential backoff with full jitter, so that agents that lost their hub at the same time do not reconnect together.
type backoff struct {
	attempts int
	// quick counts the attempts that led to a replica that already has a session.
	quick int
	// delay is the time before the next attempt; 0 before the first.
	delay time.Duration
}

// attempted computes the delay after an attempt. retryAfter is what the hub has asked for, or 0.
func (b *backoff) attempted(retryAfter time.Duration) {
	b.attempts++
	b.delay = rand.N(retry.Exponential(b.attempts, initialDelay, maxDelay))
	if retryAfter > 0 {
		b.delay = max(b.delay, retryAfter+rand.N(min(retryAfter, maxJitter)))
	}
}

// attemptedConnected computes the delay after an attempt that has led to a replica that already has a session.
func (b *backoff) attemptedConnected() {
	if b.quick++; b.quick > quickAttempts {
		b.attempted(0)
		return
	}
	b.delay = rand.N(initialDelay)
}

// sessionEnded resets the backoff if the session was stable.
func (b *backoff) sessionEnded(duration time.Duration) {
	if duration >= max(stableTime, b.delay) {
		b.reset()
	}
}

// reset sets the delay to that after the first attempt.
func (b *backoff) reset() {
	b.attempts, b.quick = 0, 0
	b.attempted(0)
}

// backoffs are those of a client. Attempts for the first session have their own, so that failures of additional ones do not delay them.
type backoffs struct{ first, additional backoff }

// sessionsEnded resets the backoffs if one of the sessions that have ended was stable. longest is the duration of the longest of them; 0 if
// none has ended. A replica that accepts sessions and ends them at once must not be asked for another one each second.
func (b *backoffs) sessionsEnded(longest time.Duration) {
	if longest > 0 {
		b.first.sessionEnded(longest)
		b.additional.sessionEnded(longest)
	}
}
