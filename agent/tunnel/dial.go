package tunnel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const (
	// maxStreams bounds the streams that a hub can open.
	maxStreams = 4096
	// dialTimeout bounds a dial of AllowList.
	dialTimeout = 15 * time.Second
)

var errTooManyStreams = fmt.Errorf("the agent has reached its limit of %d streams", maxStreams)

// AllowList returns a Dial for these TCP addresses, host:port, and no others. Link-local addresses (169.254.0.0/16, fe80::/10), on which
// clouds serve the credentials of machines, are never dialed, even if a name resolves to one.
func AllowList(addresses []string) Dial {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || at.Addr().Unmap().IsLinkLocalUnicast() {
			return fmt.Errorf("%s is a link-local address", address)
		}
		return nil
	}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" || !slices.Contains(addresses, address) {
			return nil, fmt.Errorf("%s %s is not allowed by this agent", network, address)
		}
		return dialer.DialContext(ctx, network, address)
	}
}

// dial dials for the hub, within maxStreams of all sessions, and counts.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.counters.open.Load() > maxStreams {
		c.counters.refused.Add(1)
		return nil, errTooManyStreams
	}
	conn, err := c.Dial(ctx, network, address)
	if err != nil {
		c.counters.refused.Add(1)
		c.Log.Debug("Dial for the hub failed", "network", network, "address", address, "error", err)
		return nil, err
	}
	c.counters.streams.Add(1)
	return conn, nil
}
