package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/drover-dev/drover/tunnel/wire"
)

// stream is a connection through a session. It is a net.Conn without half-close: the wire has one way to end a stream, for both directions.
type stream struct {
	session *Session
	id      int64
	remote  streamAddr
	opened  time.Time

	// writing lets one Write at a time through.
	writing sync.Mutex

	mu                 sync.Mutex
	readable, writable *sync.Cond
	readBy, writeBy    deadline

	received buffer
	// paused says that the peer was asked to pause, sentPaused how many bytes went to it since.
	paused     bool
	sentPaused int
	// stallAt is how full the buffer is when the session waits for the consumer the next time; 0 for Limits.Stall, as it is again once the
	// buffer was near empty. drained is closed when the session need not wait any more, and nil when it does not wait.
	stallAt int
	drained chan struct{}
	// accounted is how much of the memory of received is in the session's sum.
	accounted int

	// pending is what the Write that waits wants to send. It is nil when all of it is in a batch.
	pending  []byte
	queued   bool
	queuedAt time.Time
	gate     gate

	// stopDial ends the dial of a stream that the peer has opened; nil for others. target is what was dialed, once it was.
	stopDial func()
	target   net.Conn

	// err ends reading once everything received was read, and writing at once. It is set once, and again if what waited to be read was shed.
	err error
	// closed says that this end is closed: nothing is read or written any more.
	closed bool
	// dropped says that what was received was dropped, and that what is still being received is not kept.
	dropped bool
}

func newStream(s *Session, id int64, network, address string) *stream {
	st := &stream{session: s, id: id, remote: streamAddr{network, address}, opened: time.Now()}
	st.readable, st.writable = sync.NewCond(&st.mu), sync.NewCond(&st.mu)
	return st
}

// Read implements net.Conn.
func (st *stream) Read(p []byte) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		switch {
		case st.closed:
			return 0, net.ErrClosed
		case st.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case st.received.size > 0:
			n := st.received.read(p)
			st.consumed()
			st.forgetEmpty()
			return n, nil
		case st.err != nil:
			return 0, st.err
		}
		st.readable.Wait()
	}
}

// Write implements net.Conn. It returns when all of p is in what is sent to the peer next.
func (st *stream) Write(p []byte) (int, error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := st.cannotWrite(); err != nil || len(p) == 0 {
		return 0, err
	}
	st.pending = p
	st.schedule()
	for len(st.pending) > 0 {
		if err := st.cannotWrite(); err != nil {
			written := len(p) - len(st.pending)
			st.pending = nil
			return written, err
		}
		st.writable.Wait()
	}
	st.pending = nil
	return len(p), nil
}

func (st *stream) cannotWrite() error {
	switch {
	case st.closed:
		return net.ErrClosed
	case st.writeBy.passed():
		return os.ErrDeadlineExceeded
	case errors.Is(st.err, io.EOF):
		return io.ErrClosedPipe
	}
	return st.err
}

// Close implements net.Conn. The peer is told to go on before it is told that the stream has ended: the library's agents
// never free a stream that ends while it is paused.
func (st *stream) Close() error {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return net.ErrClosed
	}
	st.closed = true
	if st.err == nil {
		st.tellEnd(wire.EOF)
	}
	st.received.drop()
	st.finish()
	st.mu.Unlock()
	st.session.forget(st)
	return nil
}

// end ends the stream for both sides. Where tell is set, the peer learns why; otherwise it knows.
func (st *stream) end(err error, tell bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.err != nil {
		return
	}
	st.err = err
	if tell {
		st.tellEnd(err.Error())
	}
	st.finish()
	st.forgetEmpty()
}

// forgetEmpty has the session forget a stream that has ended and holds no memory. Until then it counts against the limits of the session
// and can be shed. A stream that was dialed is forgotten after its target got what was received. The lock is held.
func (st *stream) forgetEmpty() {
	if st.err != nil && st.received.held == 0 && st.stopDial == nil {
		st.session.forget(st)
	}
}

func (st *stream) tellEnd(text string) {
	st.session.control(st.id, wire.Resume, "")
	st.session.control(st.id, wire.Error, text)
}

// finish wakes everybody who waits and stops all timers. The lock is held.
func (st *stream) finish() {
	if st.paused {
		st.paused = false
		st.session.shared.observer.Paused(-1)
	}
	st.releaseReader()
	st.releaseTarget()
	st.gate.stop()
	st.readBy.stop()
	st.writeBy.stop()
	st.session.account(st)
	st.readable.Broadcast()
	st.writable.Broadcast()
}

// SetDeadline implements net.Conn.
func (st *stream) SetDeadline(t time.Time) error {
	return errors.Join(st.SetReadDeadline(t), st.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (st *stream) SetReadDeadline(t time.Time) error {
	return st.setDeadline(&st.readBy, t, st.readable)
}

// SetWriteDeadline implements net.Conn.
func (st *stream) SetWriteDeadline(t time.Time) error {
	return st.setDeadline(&st.writeBy, t, st.writable)
}

func (st *stream) setDeadline(d *deadline, t time.Time, waiting *sync.Cond) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return net.ErrClosed
	}
	d.set(t, waiting)
	return nil
}

// LocalAddr implements net.Conn: this end has no address of its own, and is named after the peer.
func (st *stream) LocalAddr() net.Addr { return streamAddr{"tunnel", st.session.options.Peer} }

// RemoteAddr implements net.Conn: what the peer was asked to dial.
func (st *stream) RemoteAddr() net.Addr { return st.remote }

type streamAddr struct{ network, address string }

func (a streamAddr) Network() string { return a.network }
func (a streamAddr) String() string  { return a.address }
