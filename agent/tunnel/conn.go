package tunnel

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/tunnel/session"
)

// idleTimeout is how long the hub may not send or accept anything. Pings are sent and answered every 5 seconds, so after this time the
// connection is dead.
const idleTimeout = 15 * time.Second

// timeoutConn is a connection whose reads and writes are bounded by idleTimeout, even if a later deadline is set.
type timeoutConn struct {
	net.Conn
	idleTimeout time.Duration
	// readDeadline and writeDeadline are the deadlines that were set, in Unix nanoseconds; 0 is none.
	readDeadline, writeDeadline atomic.Int64
}

func dialHub(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: handshakeTimeout, KeepAlive: idleTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return session.Bulk(&timeoutConn{Conn: conn, idleTimeout: idleTimeout}), nil
}

// Read implements net.Conn.
func (c *timeoutConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(c.earlier(&c.readDeadline)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *timeoutConn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(c.earlier(&c.writeDeadline)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// SetDeadline implements net.Conn.
func (c *timeoutConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *timeoutConn) SetReadDeadline(t time.Time) error {
	store(&c.readDeadline, t)
	return c.Conn.SetReadDeadline(c.earlier(&c.readDeadline))
}

// SetWriteDeadline implements net.Conn.
func (c *timeoutConn) SetWriteDeadline(t time.Time) error {
	store(&c.writeDeadline, t)
	return c.Conn.SetWriteDeadline(c.earlier(&c.writeDeadline))
}

func store(deadline *atomic.Int64, t time.Time) {
	if t.IsZero() {
		deadline.Store(0)
		return
	}
	deadline.Store(t.UnixNano())
}

// earlier is the deadline that was set, or the end of idleTimeout if that is earlier.
func (c *timeoutConn) earlier(deadline *atomic.Int64) time.Time {
	end := time.Now().Add(c.idleTimeout)
	if nanos := deadline.Load(); nanos != 0 {
		if t := time.Unix(0, nanos); t.Before(end) {
			return t
		}
	}
	return end
}
