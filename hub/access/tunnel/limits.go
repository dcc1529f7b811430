package tunnel

import (
	"time"

	"github.com/drover-dev/drover/tunnel/session"
)

// Limits bound what agents may cost the hub. A zero field stands for its default.
type Limits struct {
	session.Limits
	// Sessions is the maximum number of sessions of a key: the oldest ends for a new one. Default: 8.
	Sessions int
	// Ping is the time without a message after which an agent is pinged. Default: 6 s, because agents ping every 5 s.
	Ping time.Duration
	// Timeout is the time without a message after which a session ends. Default: 15 s.
	Timeout time.Duration
	// Unanswered is the time without an answer to a ping after which new streams use another session of the key, if there is one that
	// responds. Default: 500 ms.
	Unanswered time.Duration
	// Suspect is the time without a message after which the same happens without a ping. Sessions of a key that has several are pinged every
	// second. Default: 2.5 s.
	Suspect time.Duration
	// SiblingTimeout is Timeout for sessions of a key that has several. Default: 8 s.
	SiblingTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	fill(&l.Sessions, 8)
	fill(&l.Ping, 6*time.Second)
	fill(&l.Timeout, 15*time.Second)
	fill(&l.Unanswered, 500*time.Millisecond)
	fill(&l.Suspect, 2500*time.Millisecond)
	fill(&l.SiblingTimeout, 8*time.Second)
	return l
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
