package tunnel

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// silence is for how long the hub may be silent. Pings go out every five seconds and are answered, so this means that it is gone, or the way
// to it. The library alone waits for a minute, and before its first ping for ever.
const silence = 15 * time.Second

// watched is a connection whose every read and write is bounded, whatever longer deadline is set.
type watched struct {
	net.Conn
	silence time.Duration
	// read and write are the deadlines that were set, as Unix nanoseconds; 0 is none.
	read, write atomic.Int64
}

func dialWatched(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: handshakeTimeout, KeepAlive: silence}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &watched{Conn: conn, silence: silence}, nil
}

func (w *watched) Read(p []byte) (int, error) {
	if err := w.Conn.SetReadDeadline(w.bound(&w.read)); err != nil {
		return 0, err
	}
	return w.Conn.Read(p)
}

func (w *watched) Write(p []byte) (int, error) {
	if err := w.Conn.SetWriteDeadline(w.bound(&w.write)); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

func (w *watched) SetDeadline(t time.Time) error {
	if err := w.SetReadDeadline(t); err != nil {
		return err
	}
	return w.SetWriteDeadline(t)
}

func (w *watched) SetReadDeadline(t time.Time) error {
	set(&w.read, t)
	return w.Conn.SetReadDeadline(w.bound(&w.read))
}

func (w *watched) SetWriteDeadline(t time.Time) error {
	set(&w.write, t)
	return w.Conn.SetWriteDeadline(w.bound(&w.write))
}

func set(at *atomic.Int64, t time.Time) {
	if t.IsZero() {
		at.Store(0)
		return
	}
	at.Store(t.UnixNano())
}

// bound is the earlier of what was set and the end of the hub's time.
func (w *watched) bound(set *atomic.Int64) time.Time {
	bound := time.Now().Add(w.silence)
	if nanos := set.Load(); nanos != 0 {
		if t := time.Unix(0, nanos); t.Before(bound) {
			return t
		}
	}
	return bound
}
