package tunnel

import "time"

// Limits bound what agents may cost the hub. A zero field stands for its default.
type Limits struct {
	// Message is the maximum size of a message in bytes. Default: 1 MiB. Agents send 32 KiB at once.
	Message int64
	// Pause is the number of unread bytes of a stream at which the agent is asked to pause. Default: 512 KiB. It is asked to resume at a
	// quarter of that.
	Pause int
	// Stall is the number of unread bytes of a stream at which the session is not read for up to StallTime, so that the agent has time to
	// see the request to pause. The same happens several times between there and Stream. Default: 8 MiB.
	Stall int
	// StallTime is the longest such time. Default: 1 s.
	StallTime time.Duration
	// Stream is the number of unread bytes at which a stream ends. Default: 16 MiB.
	Stream int
	// Session is the memory in bytes for unread bytes of a session. Above half of it streams are paused early; beyond it the fullest stream of
	// the session ends. Default: 64 MiB.
	Session int64
	// Process is the same for all sessions together. Default: 512 MiB.
	Process int64
	// Streams is the maximum number of streams of a session. Default: 4096.
	Streams int
	// Sessions is the maximum number of sessions of a key: the oldest ends for a new one. Default: 8.
	Sessions int
	// Write is the time limit for one write to an agent. Default: 30 s.
	Write time.Duration
	// Ping is the time without a message after which an agent is pinged. Default: 6 s, because agents ping every 5 s.
	Ping time.Duration
	// Timeout is the time without a message after which a session ends. Default: 15 s.
	Timeout time.Duration
	// Suspect is the time without a message after which new streams use another session of the key, if there is one. Sessions of a key that
	// has several are pinged every second. Default: 2.5 s.
	Suspect time.Duration
	// SiblingTimeout is Timeout for sessions of a key that has several. Default: 8 s.
	SiblingTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	fill(&l.Message, 1<<20)
	fill(&l.Pause, 512<<10)
	fill(&l.Stall, 8<<20)
	fill(&l.StallTime, time.Second)
	fill(&l.Stream, 16<<20)
	fill(&l.Session, 64<<20)
	fill(&l.Process, 512<<20)
	fill(&l.Streams, 4096)
	fill(&l.Sessions, 8)
	fill(&l.Write, 30*time.Second)
	fill(&l.Ping, 6*time.Second)
	fill(&l.Timeout, 15*time.Second)
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
