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
	// maxStreams bounds what a hub can make an agent hold.
	maxStreams = 4096
	// dialTimeout ends a dial of something that does not answer.
	dialTimeout = 15 * time.Second
)

var errTooManyStreams = fmt.Errorf("the agent has %d streams, and takes no more", maxStreams)

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
	return newStream(conn, &c.counters), nil
}
