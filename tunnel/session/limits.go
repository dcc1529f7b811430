package session

import "time"

// Limits bound what the peer of a session may cost. A zero field stands for its default.
type Limits struct {
	// Message is the maximum size of a message in bytes. Default: 1 MiB. Agents send 64 KiB at once at most.
	Message int64
	// Pause is the number of unread bytes of a stream at which the peer is asked to pause. Default: 512 KiB. It is asked to resume at a
	// quarter of that.
	Pause int
	// Stall is the number of unread bytes of a stream at which the session is not read for up to StallTime, so that the peer has time to
	// see the request to pause. The same happens several times between there and Stream. Default: 8 MiB.
	Stall int
	// StallTime is the longest such time. Default: 1 s.
	StallTime time.Duration
	// Stream is the number of unread bytes at which a stream ends. Default: 16 MiB.
	Stream int
	// Session is the memory in bytes for unread bytes of a session, also of streams that have ended. Above half of it streams are paused
	// early; beyond it the fullest stream of the session ends. Default: 64 MiB.
	Session int64
	// Process is the same for all sessions together; beyond it the fullest stream of the session that holds most ends. Default: 512 MiB.
	Process int64
	// Streams is the maximum number of streams of a session, with those that have ended and have unread bytes. Default: 4096.
	Streams int
	// SyncAge is how old a stream must be before the peer's list of streams ends it: the list may have been on its way when the stream was
	// opened. Default: 30 s.
	SyncAge time.Duration
	// Write is the time limit for one write to a peer. Default: 30 s.
	Write time.Duration
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
	fill(&l.SyncAge, 30*time.Second)
	fill(&l.Write, 30*time.Second)
	return l
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
