package tunnel

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay = time.Second
	longest    = 5 * time.Minute
	// spread is by how much at most agents that were all told the same time to come back come later.
	spread = 30 * time.Second
)

// backoff is the pace of attempts: with full jitter, so that agents that lost their hub at the same moment do not come back together.
type backoff struct {
	tries int
	// atLeast is what the hub has asked for.
	atLeast time.Duration
}

// delay is how long to wait before the next attempt; the first one ever is made at once.
func (b *backoff) delay() time.Duration {
	if b.tries == 0 {
		return 0
	}
	limit := longest
	if shift := b.tries - 1; shift < 20 {
		limit = min(firstDelay<<shift, longest)
	}
	delay := rand.N(limit)
	if b.atLeast > 0 {
		delay = max(delay, b.atLeast+rand.N(min(b.atLeast, spread)))
	}
	return delay
}

// tried notes an attempt, and what the hub has asked for with its answer.
func (b *backoff) tried(atLeast time.Duration) {
	b.tries++
	b.atLeast = atLeast
}

// reset forgets the attempts before the last one.
func (b *backoff) reset() {
	b.tries, b.atLeast = min(b.tries, 1), 0
}
