package tunnel

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay = time.Second
	longest    = 5 * time.Minute
	// steady is how long a session must have lasted at least for its end not to count as a failure; and for longer than was waited for it,
	// so that a hub that takes everybody in and then breaks down is not overrun.
	steady = 10 * time.Second
	// spread is by how much at most agents that were all told the same time to come back come later.
	spread = 30 * time.Second
)

// backoff is the pace of attempts: with full jitter, so that agents that lost their hub at the same moment do not come back together.
type backoff struct {
	tries int
	// wait is how long to wait before the next attempt; the first one ever is made at once.
	wait time.Duration
}

// tried notes an attempt, and what the hub has asked for with its answer.
func (b *backoff) tried(atLeast time.Duration) {
	b.tries++
	limit := longest
	if shift := b.tries - 1; shift < 20 {
		limit = min(firstDelay<<shift, longest)
	}
	b.wait = rand.N(limit)
	if atLeast > 0 {
		b.wait = max(b.wait, atLeast+rand.N(min(atLeast, spread)))
	}
}

// ended notes the end of a session that had lasted for some time.
func (b *backoff) ended(lasted time.Duration) {
	if lasted >= max(steady, b.wait) {
		b.reset()
	}
}

// reset forgets the attempts before, as if there had been one.
func (b *backoff) reset() {
	b.tries = 0
	b.tried(0)
}
