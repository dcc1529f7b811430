package tunnel

import "time"

// Limits bound what agents may cost the hub. A zero field stands for its default.
type Limits struct {
	// Message is the longest message that is read, in bytes: 1 MiB. Agents send 32 KiB at once.
	Message int64
	// Pause is how many bytes of a stream may wait for their consumer before the agent is asked to pause: 512 KiB. It is asked to go on
	// when a quarter of that is left.
	Pause int
	// Stall is how many bytes of a stream may wait before the session is not read for a moment, at most StallTime (1 s) for each time
	// that the stream fills up, so that an agent has time to see the pause; Stream is how many end the stream. 8 MiB and 16 MiB.
	Stall     int
	StallTime time.Duration
	Stream    int
	// Session and Process are how much memory the waiting bytes of a session and of all sessions may take: 64 MiB and 512 MiB.
	// Above half of it streams are paused early; beyond it the fullest stream of the session ends.
	Session, Process int64
	// Streams is how many streams a session may have: 4096. Sessions is how many sessions a key may have: 8; the oldest ends for a new one.
	Streams, Sessions int
	// Write is how long one write to an agent may take: 30 s.
	Write time.Duration
	// Ping is how long an agent may say nothing before it is asked for a sign of life: 6 s, because agents ping by themselves every 5 s.
	// Dead is the silence after which its session ends: 15 s.
	Ping, Dead time.Duration
	// Doubt is the silence after which a session is not used for new streams where there is another: 2.5 s. Sessions that have a sibling are
	// asked for a sign of life every second, and end after Deserted: 8 s.
	Doubt, Deserted time.Duration
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
	fill(&l.Dead, 15*time.Second)
	fill(&l.Doubt, 2500*time.Millisecond)
	fill(&l.Deserted, 8*time.Second)
	return l
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
