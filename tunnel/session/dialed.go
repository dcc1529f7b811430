package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/tunnel/wire"
)

// Dial dials an address for the peer. An error ends that stream, not the session. ctx ends with the stream or the session.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	// dialTimeout bounds a dial for the peer.
	dialTimeout = time.Minute
	// deliveryTimeout is how long a target may take to accept a part of what a stream that has ended still holds.
	deliveryTimeout = 30 * time.Second
)

// connect handles a request to dial. What the peer sends meanwhile is kept in the stream's buffer.
func (s *Session) connect(id int64, target string) {
	if s.options.Dial == nil {
		s.violation("it asks this end to dial")
		s.refuse(id, "this end does not dial for its peer")
		return
	}
	network, address, found := strings.Cut(target, "/")
	if !found || len(target) > wire.MaxTarget {
		s.violation("it asks for a connection to what is no address")
		s.refuse(id, "the address must be network/address, in 266 bytes at most")
		return
	}
	s.mu.Lock()
	full, taken := len(s.streams) >= s.shared.limits.Streams, s.streams[id] != nil
	if full || taken || s.end != nil {
		s.mu.Unlock()
		if taken {
			s.violation("it opens a stream that is open")
		} else {
			s.control(id, wire.Error, fmt.Sprintf("the agent has reached its limit of %d connections of a tunnel", s.shared.limits.Streams))
		}
		return
	}
	st := newStream(s, id, network, address)
	ctx, cancel := context.WithTimeout(s.dialing, dialTimeout)
	st.stopDial = cancel
	s.keep(st)
	s.mu.Unlock()
	s.shared.observer.Streams(1)
	s.dialed.Go(func() { st.dial(ctx) })
}

// dial dials the stream's target and copies until the stream has ended.
func (st *stream) dial(ctx context.Context) {
	defer st.session.forget(st)
	defer st.stopDial()
	target, err := st.session.options.Dial(ctx, st.remote.network, st.remote.address)
	if err == nil {
		defer target.Close()
		st.mu.Lock()
		st.target = target
		st.mu.Unlock()
		err = ctx.Err() // the stream or the session may have ended meanwhile
	}
	if err != nil {
		st.end(err, true)
		st.drop(err)
		return
	}
	var delivering sync.WaitGroup
	delivering.Go(func() { st.deliver(target) })
	err = st.collect(target)
	if err == nil {
		err = io.EOF
	}
	st.end(err, true)
	delivering.Wait()
	st.drop(err)
}

// drop gives back the memory of what was received by a stream that has ended, and of what is still being received. If bytes are lost,
// reading ends with err: what was read must not be taken for all there was.
func (st *stream) drop(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.received.size > 0 {
		st.err = err
	}
	st.dropped = true
	st.received.drop()
	st.session.account(st)
	st.forgetEmpty()
}

// releaseTarget follows the end of a stream: the target gets what was received before, in limited time. A dial is given up, unless the peer
// has closed the stream in the ordinary way, perhaps after it has sent something. The lock is held.
func (st *stream) releaseTarget() {
	switch {
	case st.stopDial == nil:
	case st.target != nil:
		_ = st.target.SetWriteDeadline(time.Now().Add(deliveryTimeout))
	case !errors.Is(st.err, io.EOF):
		st.stopDial()
	}
}

// closeTarget follows the end of the session.
func (st *stream) closeTarget() {
	st.mu.Lock()
	target := st.target
	st.mu.Unlock()
	if target != nil {
		_ = target.Close()
	}
}

// deliver copies what the peer sends to the target until the stream ends, and ends reading from the target then. If the target accepts no
// more, the rest is discarded: the target may have sent something before, which collect still reads.
func (st *stream) deliver(target net.Conn) {
	defer stopReading(target)
	accepts := true
	for {
		c, ended := st.nextReceived()
		if c == nil {
			return
		}
		if accepts {
			if ended {
				_ = target.SetWriteDeadline(time.Now().Add(deliveryTimeout))
			}
			n, err := target.Write(c.data[c.r:c.w])
			st.session.shared.observer.Copied(0, n)
			if accepts = err == nil; !accepts {
				_ = target.SetReadDeadline(time.Now().Add(deliveryTimeout))
			}
		}
		c.free()
	}
}

// stopReading wakes a goroutine that reads.
func stopReading(target net.Conn) {
	if err := target.SetReadDeadline(time.Now()); err != nil {
		_ = target.Close()
	}
}

// nextReceived waits for what the peer sends. It returns nil at the end of the stream; ended is true if nothing more will be received.
func (st *stream) nextReceived() (c *chunk, ended bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.received.size == 0 {
		if st.err != nil {
			return nil, true
		}
		st.readable.Wait()
	}
	c = st.received.take()
	st.consumed()
	return c, st.err != nil
}

// collect copies what the target sends to the peer. It returns nil at the end of the target's data.
func (st *stream) collect(target net.Conn) error {
	var raw syscall.RawConn
	if socket, ok := target.(syscall.Conn); ok {
		if r, err := socket.SyscallConn(); err == nil {
			raw = r
		}
	}
	for {
		data, n, err := readTarget(target, raw)
		if err == nil {
			_, err = st.Write(data[:n])
			readBuffers.Put(data)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		st.session.shared.observer.Copied(n, 0)
	}
}

// readBuffers are for reading from targets. Most streams are idle connections or watches, so a stream has one only while it copies.
var readBuffers = sync.Pool{New: func() any { return new([clientQuantum]byte) }}

// readTarget reads once. It takes a buffer when data is available, and returns none with an error. raw is nil for a target without a
// socket.
func readTarget(target net.Conn, raw syscall.RawConn) (*[clientQuantum]byte, int, error) {
	if raw == nil {
		b := readBuffers.Get().(*[clientQuantum]byte)
		n, err := target.Read(b[:])
		if n > 0 {
			return b, n, nil // the next read returns the error
		}
		readBuffers.Put(b)
		return nil, 0, err
	}
	var b *[clientQuantum]byte
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		b = readBuffers.Get().(*[clientQuantum]byte)
		for n, failed = unix.Read(int(fd), b[:]); errors.Is(failed, unix.EINTR); {
			n, failed = unix.Read(int(fd), b[:])
		}
		if n <= 0 {
			readBuffers.Put(b)
			b = nil
		}
		return !errors.Is(failed, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return nil, 0, err
	case failed != nil:
		return nil, 0, os.NewSyscallError("read", failed)
	case n == 0:
		return nil, 0, io.EOF
	}
	return b, n, nil
}
