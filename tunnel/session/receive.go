package session

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/drover-dev/drover/tunnel/wire"
)

const (
	// pressure divides the limit at which streams are paused while memory is short.
	pressure = 8
	// maxSentPaused is how much goes to an agent in a stream that it was asked to pause, and maxHeldPaused how full that stream's buffer
	// may be meanwhile. An agent of the library does not pause its sender while it is paused itself, and goes on sending as soon as its own
	// consumer reads.
	maxSentPaused = 2 << 20
	maxHeldPaused = 4 << 20
)

// receive takes the body of a Data message: head is what was read of it already. The error is the reader's.
func (st *stream) receive(head []byte, body io.Reader) error {
	st.admit()
	for {
		st.mu.Lock()
		if st.closed || st.err != nil {
			st.mu.Unlock()
			return nil
		}
		room := st.received.room()
		st.session.account(st)
		st.mu.Unlock()

		// Nobody else touches room while it is filled, so that the consumer can go on reading what came before.
		n := copy(room, head)
		head = head[n:]
		var err error
		for n < len(room) && err == nil {
			var more int
			more, err = body.Read(room[n:])
			n += more
		}
		st.fill(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// fill ends what room began, and asks the agent to pause when the consumer is behind.
func (st *stream) fill(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.received.commit(n)
	if st.closed || st.dropped {
		st.received.drop()
	}
	st.session.account(st)
	if st.closed || st.err != nil {
		st.forgetEmpty()
		return
	}
	st.readable.Broadcast()
	if !st.paused && st.received.size > st.pauseAt() {
		st.pause()
	}
}

func (st *stream) pauseAt() int {
	if st.session.short() {
		return st.session.shared.limits.Pause / pressure
	}
	return st.session.shared.limits.Pause
}

// pause asks the agent to pause. Like every other message of a stream it is queued under the lock, so that messages go out in the order of
// what they say.
func (st *stream) pause() {
	if !st.paused {
		st.paused = true
		st.session.shared.observer.Paused(1)
	}
	st.sentPaused = 0
	st.session.control(st.id, wire.Pause, "")
}

// consumed follows a Read: it asks the agent to go on when the buffer is nearly empty. The lock is held.
func (st *stream) consumed() {
	st.session.account(st)
	if st.received.size < st.session.shared.limits.Stall/2 {
		st.releaseReader()
	}
	if st.received.size > st.pauseAt()/4 {
		return
	}
	st.stallAt = 0
	if st.paused {
		st.paused = false
		st.session.shared.observer.Paused(-1)
		st.session.control(st.id, wire.Resume, "")
		st.schedule()
	}
}

// stalls is how often the session waits before it ends a stream.
const stalls = 8

// admit decides whether more may be kept for this stream. An agent that is fast has much on the way when it is asked to pause, and on a
// busy machine it takes a while to see the request, so that the session waits several times before it ends a stream.
func (st *stream) admit() {
	limits := &st.session.shared.limits
	st.mu.Lock()
	if st.closed || st.err != nil {
		st.mu.Unlock()
		return
	}
	size := st.received.size
	var drained chan struct{}
	if size >= max(limits.Stall, st.stallAt) && size < limits.Stream {
		st.stallAt = size + max(1, (limits.Stream-limits.Stall)/stalls)
		drained = make(chan struct{})
		st.drained = drained
	}
	st.mu.Unlock()
	if drained != nil {
		timer := time.NewTimer(limits.StallTime)
		select {
		case <-drained:
		case <-timer.C:
		}
		timer.Stop()
		return
	}
	switch {
	case size >= limits.Stream:
		st.session.shed(st, fmt.Sprintf("more than %d MiB of the stream wait to be read, and the %s goes on sending", size>>20,
			st.session.other()))
	case st.session.full():
		if fullest := st.session.fullest(); fullest != nil {
			st.session.shed(fullest, usedUp)
		}
	default:
		st.session.shared.shed()
	}
}

// releaseReader lets the session go on that waits in admit.
func (st *stream) releaseReader() {
	if st.drained != nil {
		close(st.drained)
		st.drained = nil
	}
}
