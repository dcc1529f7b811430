package session

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
	// bulkWrite is how much is more than one record of TLS.
	bulkWrite = 16 << 10
	// bulkHeld is how much may be held before it is written: a batch, and what TLS adds.
	bulkHeld = batchSize + clientQuantum + 4<<10
)

var (
	bulkBuffers = sync.Pool{New: func() any { return new([bulkBuffer]byte) }}
	heldBuffers = sync.Pool{New: func() any {
		held := make([]byte, 0, bulkHeld)
		return &held
	}}
)

// Listener returns a listener whose connections are those of Bulk. It belongs below TLS.
func Listener(listener net.Listener) net.Listener { return bulkListener{listener} }

type bulkListener struct{ net.Listener }

// Accept implements net.Listener.
func (l bulkListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Bulk(conn), nil
}

// Bulk returns a connection that is read in large pieces while much arrives, and has no buffer when not. It belongs below TLS, which reads
// and writes every record with a system call of its own; a session holds what TLS writes until its batch is complete.
func Bulk(conn net.Conn) net.Conn { return &bulk{Conn: conn} }

// bulk is read by one goroutine at a time, which is what TLS and the websocket library do.
type bulk struct {
	net.Conn
	// Bytes r to w of ahead were read and not yet asked for.
	ahead *[bulkBuffer]byte
	r, w  int

	// held is what was written and is held until flush; nil if nothing is to be held. TLS may write from the goroutine that reads, too.
	writing sync.Mutex
	held    *[]byte
}

// Read implements net.Conn.
func (c *bulk) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	if c.ahead == nil {
		n, err := c.Conn.Read(p)
		if n == len(p) && n >= bulkStart && err == nil {
			c.ahead = bulkBuffers.Get().(*[bulkBuffer]byte)
		}
		return n, err
	}
	if c.r == c.w {
		n, err := c.Conn.Read(c.ahead[:])
		if c.r, c.w = 0, n; err != nil && n == 0 {
			c.release()
			return 0, err
		}
	}
	n := copy(p, c.ahead[c.r:c.w])
	if c.r += n; c.r == c.w && c.w < bulkContinue {
		c.release()
	}
	return n, nil
}

func (c *bulk) release() {
	bulkBuffers.Put(c.ahead)
	c.ahead, c.r, c.w = nil, 0, 0
}

// Write implements net.Conn.
func (c *bulk) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.held == nil {
		return c.Conn.Write(p)
	}
	if len(*c.held)+len(p) > bulkHeld {
		if err := c.writeHeld(); err != nil {
			return 0, err
		}
	}
	*c.held = append(*c.held, p...)
	return len(p), nil
}

// hold keeps what is written from now on until flush.
func (c *bulk) hold() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.held = heldBuffers.Get().(*[]byte)
}

// flush writes what is held.
func (c *bulk) flush() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	err := c.writeHeld()
	heldBuffers.Put(c.held)
	c.held = nil
	return err
}

func (c *bulk) writeHeld() error {
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}
