package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// maxStreams bounds what a hub can make an agent hold.
	maxStreams = 4096
	// dialTimeout ends a dial of something that does not answer.
	dialTimeout = 15 * time.Second
	// chunkBytes fits into one frame together with what the wire puts before it.
	chunkBytes = bufferBytes - 64
)

var errTooManyStreams = fmt.Errorf("the agent has %d streams, and takes no more", maxStreams)

// chunks are what streams copy with.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// AllowList dials the TCP addresses that are listed, and no others. Addresses that are local to a link (169.254.0.0/16, fe80::/10) are where
// clouds hand out the credentials of machines; they are never dialed, also not under a name.
func AllowList(addresses []string) Dial {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || at.Addr().Unmap().IsLinkLocalUnicast() {
			return fmt.Errorf("%s is local to the link", address)
		}
		return nil
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" || !slices.Contains(addresses, address) {
			return nil, fmt.Errorf("%s %s is not on this agent's list", network, address)
		}
		return dialer.DialContext(ctx, network, address)
	}
}

// local answers a dial of the hub, and counts.
func (c *Client) local(ctx context.Context, network, address string) (net.Conn, error) {
	if c.counters.open.Add(1) > maxStreams {
		c.counters.open.Add(-1)
		c.counters.refused.Add(1)
		return nil, errTooManyStreams
	}
	conn, err := c.Dial(ctx, network, address)
	if err != nil {
		c.counters.open.Add(-1)
		c.counters.refused.Add(1)
		c.Log.Debug("A dial of the hub was refused", "network", network, "address", address, "error", err)
		return nil, err
	}
	c.counters.streams.Add(1)
	return &stream{Conn: conn, counters: &c.counters}, nil
}

// stream is the local end of a stream. The library copies from it to the tunnel and back.
type stream struct {
	net.Conn
	counters *counters
	closed   atomic.Bool

	mu sync.Mutex
	// tunnel is where WriteTo copies to while it does.
	tunnel io.Writer
}

// WriteTo copies to the tunnel. It is here so that Close knows the tunnel's end: the library leaves a copy that the hub has paused
// waiting for ever when the hub closes the stream meanwhile.
func (s *stream) WriteTo(tunnel io.Writer) (int64, error) {
	s.setTunnel(tunnel)
	defer s.setTunnel(nil)
	chunk := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(chunk)
	var total int64
	for {
		n, err := s.Conn.Read(chunk[:])
		if n > 0 {
			if _, err := tunnel.Write(chunk[:n]); err != nil {
				return total, err
			}
			total += int64(n)
			s.counters.sent.Add(int64(n))
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.counters.received.Add(int64(n))
	return n, err
}

// Close also wakes a copy to the tunnel that the hub has paused.
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
