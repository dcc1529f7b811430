package session

import (
	"time"

	"github.com/drover-dev/drover/tunnel/wire"
)

// How much of a stream goes out before it is another stream's turn. A client sends more at once: its peer, a hub, pays for each message.
const (
	serverQuantum = 32 << 10
	clientQuantum = 64<<10 - 64
)

func (s *Session) quantum() int {
	if s.options.Client {
		return clientQuantum
	}
	return serverQuantum
}

// schedule puts the stream in line when it has something to send and may. The lock is held.
func (st *stream) schedule() {
	if st.queued || len(st.pending) == 0 || !st.maySend() {
		return
	}
	st.queued, st.queuedAt = true, time.Now()
	st.session.enqueue(st)
}

func (st *stream) maySend() bool {
	if st.paused && !st.session.options.Directional && (st.sentPaused > maxSentPaused || st.received.size > maxHeldPaused) {
		return false
	}
	return st.gate.state == gateOpen || st.gate.state == gateProbe
}

// take appends the next message of the stream to batch.
func (st *stream) take(batch []byte) []byte {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.queued = false
	if len(st.pending) == 0 || !st.maySend() {
		return batch
	}
	n := min(len(st.pending), st.session.quantum())
	if st.gate.state == gateProbe {
		n = 1
		st.gate.state = gateProbing
		st.arm(max(minGateWait, 2*st.session.RoundTrip()))
	}
	batch = wire.AppendMessage(st.session.frames, batch, st.session.number.Add(1), wire.Header{Stream: st.id, Type: wire.Data}, st.pending[:n])
	st.pending = st.pending[n:]
	if st.paused {
		st.sentPaused += n
	}
	st.session.shared.observer.Queued(time.Since(st.queuedAt))
	if len(st.pending) == 0 {
		st.writable.Broadcast()
	} else {
		st.schedule()
	}
	return batch
}
