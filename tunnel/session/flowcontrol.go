package session

import (
	"time"

	"github.com/drover-dev/drover/tunnel/wire"
)

// gate is whether a stream may send, as the peer asked with PAUSE and RESUME.
//
// The rest is for peers that are not directional. The library's agents keep one flag for both directions of a stream. While such a peer has
// asked to pause, it does not send either, so that a target that reads only as fast as it can write stays stuck for ever; and a RESUME from
// here, which is about the other direction, makes the peer forget that it owes a RESUME of its own. So a pause is not waited out for ever:
// after a moment the peer is told to go on, which frees its writer, and some time later one byte asks whether it is still behind. If it is,
// it asks to pause again, is told again to go on, and is asked again later.
type gate struct {
	state gateState
	// wait is how long the agent is left alone before it is asked; it doubles with each question that was answered by PAUSE.
	wait  time.Duration
	timer *time.Timer
	// armed counts timers, so that one that was replaced does nothing.
	armed int
}

type gateState int

const (
	gateOpen gateState = iota
	// gatePaused waits for RESUME, for a moment.
	gatePaused
	// gateResumeSent has told the agent to go on, and leaves it alone.
	gateResumeSent
	// gateProbe lets one byte through.
	gateProbe
	// gateProbing waits for the answer to that byte: PAUSE, or nothing.
	gateProbing
)

const (
	minGateWait = 20 * time.Millisecond
	maxGateWait = time.Second
)

func (g *gate) stop() {
	g.armed++
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

// arm waits. The stream's lock is held.
func (st *stream) arm(wait time.Duration) {
	st.gate.stop()
	armed := st.gate.armed
	st.gate.timer = time.AfterFunc(wait, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.gate.armed == armed {
			st.gateTimedOut()
		}
	})
}

// peerPaused handles PAUSE.
func (st *stream) peerPaused() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.err != nil {
		return
	}
	if st.session.options.Directional {
		st.gate.state = gatePaused
		return
	}
	switch st.gate.state {
	case gatePaused:
		return
	case gateProbing:
		st.gate.wait = min(2*st.gate.wait, maxGateWait)
		st.gate.state = gatePaused
		st.gateTimedOut()
		return
	case gateOpen:
		st.gate.wait = minGateWait
	}
	st.gate.state = gatePaused
	st.arm(minGateWait + st.session.RoundTrip())
}

// peerResumed handles RESUME. It comes from an agent that has read what it had, and says too that it has forgotten that it was asked to
// pause itself. It is answered, because only a message from here wakes an agent's writer that has waited meanwhile.
func (st *stream) peerResumed() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.err != nil {
		return
	}
	st.gate.stop()
	st.gate.state = gateOpen
	if st.session.options.Directional {
		st.schedule()
		return
	}
	if st.paused {
		st.pause()
	} else {
		st.session.control(st.id, wire.Resume, "")
	}
	st.schedule()
}

// gateTimedOut follows the end of a wait.
func (st *stream) gateTimedOut() {
	switch st.gate.state {
	case gatePaused:
		if st.paused {
			// The agent keeps its flag, for it was asked to pause too, and will send RESUME.
			st.gate.wait = min(2*st.gate.wait, maxGateWait)
			st.arm(st.gate.wait)
			return
		}
		st.session.control(st.id, wire.Resume, "")
		st.gate.state = gateResumeSent
		st.arm(st.gate.wait)
	case gateResumeSent:
		st.gate.state = gateProbe
	case gateProbing:
		st.gate.state = gateOpen
	default:
		return
	}
	st.schedule()
}
