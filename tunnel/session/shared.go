package session

import (
	"sync"
	"sync/atomic"
	"time"
)

// Shared is what all sessions of one end have in common.
type Shared struct {
	limits   Limits
	observer Observer
	// used is the memory in bytes of all sessions' received bytes.
	used atomic.Int64
	// shedding is held by the goroutine that ends streams because all sessions together hold too much.
	shedding sync.Mutex

	mu sync.Mutex
	// sessions are those with streams.
	sessions map[*Session]struct{}
}

// NewShared returns what sessions with these limits share. The observer may be nil.
func NewShared(limits Limits, observer Observer) *Shared {
	if observer == nil {
		observer = noObserver{}
	}
	return &Shared{limits: limits.withDefaults(), observer: observer, sessions: map[*Session]struct{}{}}
}

// add and remove are called with the session's lock held.
func (s *Shared) add(session *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session] = struct{}{}
}

func (s *Shared) remove(session *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
}

// Limits are those of the sessions, with the defaults filled in.
func (s *Shared) Limits() Limits { return s.limits }

// Used is the memory in bytes of what all sessions have received and nobody has read.
func (s *Shared) Used() int64 { return s.used.Load() }

// Observer counts what sessions do. Its methods are called from many goroutines, some with a lock held: they must not block.
type Observer interface {
	// Sent and Received count the bytes of the websocket.
	Sent(bytes int)
	Received(bytes int)
	// Streams and Paused change the number of open streams, and of streams that the peer was asked to pause.
	Streams(change int)
	Paused(change int)
	// Queued is how long data waited to be sent, RoundTrip how long the peer took to answer a ping.
	Queued(time.Duration)
	RoundTrip(time.Duration)
	// Copied counts the bytes of dialed streams: those that were sent to the peer, and those that the peer has sent.
	Copied(toPeer, fromPeer int)
	// Shed counts streams that were ended to free memory, Violation messages that the peer should not send.
	Shed()
	Violation()
}

type noObserver struct{}

func (noObserver) Sent(int)                {}
func (noObserver) Received(int)            {}
func (noObserver) Streams(int)             {}
func (noObserver) Paused(int)              {}
func (noObserver) Queued(time.Duration)    {}
func (noObserver) RoundTrip(time.Duration) {}
func (noObserver) Copied(int, int)         {}
func (noObserver) Shed()                   {}
func (noObserver) Violation()              {}
