package tunnel

import (
	"net"
	"sync"
)

const (
	// bulkBuffer is the size of the buffer that a connection is read into while it moves much.
	bulkBuffer = 64 << 10
	// A read that was filled with so much is a sign that there is more to come, and one into the buffer that found so much that it goes on.
	// Below that are handshakes and ordinary requests, after which a connection may be idle for long.
	bulkStart    = 2 << 10
	bulkContinue = 8 << 10
)

var bulkBuffers = sync.Pool{New: func() any { return new([bulkBuffer]byte) }}

// ReadAhead returns a listener whose connections are read in large pieces while much arrives, and have no buffer when not. It belongs below
// TLS: agents make a TLS record of every 4 KiB, and each would be read with a system call of its own.
func ReadAhead(listener net.Listener) net.Listener { return readAheadListener{listener} }

type readAheadListener struct{ net.Listener }

// Accept implements net.Listener.
func (l readAheadListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &readAhead{Conn: conn}, nil
}

// readAhead is a connection that is read by one goroutine at a time, which is what TLS and the websocket library do.
type readAhead struct {
	net.Conn
	// Bytes r to w of bulk were read and not yet asked for.
	bulk *[bulkBuffer]byte
	r, w int
}

// Read implements net.Conn.
func (c *readAhead) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	if c.bulk == nil {
		n, err := c.Conn.Read(p)
		if n == len(p) && n >= bulkStart && err == nil {
			c.bulk = bulkBuffers.Get().(*[bulkBuffer]byte)
		}
		return n, err
	}
	if c.r == c.w {
		n, err := c.Conn.Read(c.bulk[:])
		if c.r, c.w = 0, n; err != nil && n == 0 {
			c.release()
			return 0, err
		}
	}
	n := copy(p, c.bulk[c.r:c.w])
	if c.r += n; c.r == c.w && c.w < bulkContinue {
		c.release()
	}
	return n, nil
}

func (c *readAhead) release() {
	bulkBuffers.Put(c.bulk)
	c.bulk, c.r, c.w = nil, 0, 0
}
