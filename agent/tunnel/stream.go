package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes fits into one frame together with the header of the wire protocol.
	chunkBytes = bufferBytes - 64
	// smallBytes is the buffer of a stream while little or no data comes from the hub.
	smallBytes = 4 << 10
)

// chunk is a buffer for copying. Most streams are idle connections or watches, so a stream holds a chunk only while it copies.
type chunk [chunkBytes]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// stream is the local end of a stream. remotedialer copies between it and the tunnel.
type stream struct {
	net.Conn
	// raw is Conn's socket; nil if it has none.
	raw      syscall.RawConn
	counters *counters
	closed   atomic.Bool

	mu sync.Mutex
	// tunnel is the argument of a running WriteTo.
	tunnel io.Writer
}

func newStream(conn net.Conn, counters *counters) *stream {
	s := &stream{Conn: conn, counters: counters}
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	return s
}

// WriteTo implements io.WriterTo: it copies to the tunnel. It stores the tunnel's end for Close: if the hub closes a stream that it has
// paused, remotedialer never wakes the copy.
func (s *stream) WriteTo(tunnel io.Writer) (int64, error) {
	s.setTunnel(tunnel)
	defer s.setTunnel(nil)
	var total int64
	for {
		c, n, err := s.next()
		if err == nil {
			_, err = tunnel.Write(c[:n])
			chunks.Put(c)
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		total += int64(n)
		s.counters.sent.Add(int64(n))
	}
}

// next reads once. It takes a chunk when data is available, and returns none with an error.
func (s *stream) next() (*chunk, int, error) {
	if s.raw == nil {
		c := chunks.Get().(*chunk)
		n, err := s.Conn.Read(c[:])
		if n > 0 {
			return c, n, nil // the next read returns the error
		}
		chunks.Put(c)
		return nil, 0, err
	}
	var c *chunk
	var n int
	var failed error
	err := s.raw.Read(func(fd uintptr) bool {
		c = chunks.Get().(*chunk)
		for n, failed = unix.Read(int(fd), c[:]); errors.Is(failed, unix.EINTR); {
			n, failed = unix.Read(int(fd), c[:])
		}
		if n <= 0 {
			chunks.Put(c)
			c = nil
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
	return c, n, nil
}

// ReadFrom implements io.ReaderFrom: it copies from the tunnel.
func (s *stream) ReadFrom(tunnel io.Reader) (int64, error) {
	var small [smallBytes]byte
	var large *chunk
	defer func() {
		if large != nil {
			chunks.Put(large)
		}
	}()
	var total int64
	for {
		buffer := small[:]
		if large != nil {
			buffer = large[:]
		}
		n, err := tunnel.Read(buffer)
		if n > 0 {
			if _, err := s.Conn.Write(buffer[:n]); err != nil {
				return total, err
			}
			total += int64(n)
			s.counters.received.Add(int64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err != nil:
			return total, err
		case large == nil && n == len(small):
			large = chunks.Get().(*chunk)
		case large != nil && n < len(small):
			chunks.Put(large)
			large = nil
		}
	}
}

// Close implements net.Conn. It also ends a copy to the tunnel that the hub has paused.
func (s *stream) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	s.counters.open.Add(-1)
	err := s.Conn.Close()
	s.mu.Lock()
	tunnel, copying := s.tunnel.(io.Closer)
	s.mu.Unlock()
	if copying {
		_ = tunnel.Close()
	}
	return err
}

func (s *stream) setTunnel(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tunnel = w
}
