package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Tunnel lets the hub reach addresses through this machine, over a connection that the agent makes to the hub.
type Tunnel struct {
	Enabled bool `json:"enabled"`
	// Allow are the TCP addresses, host:port, that the hub may have dialed from this machine; no others are.
	Allow []string `json:"allow"`
}

func (t Tunnel) validate(remote bool) error {
	var errs []error
	if t.Enabled && !remote {
		errs = append(errs, errors.New("tunnel.enabled: is true, and remoteEnabled is not, so there is no hub to connect to"))
	}
	if t.Enabled && len(t.Allow) == 0 {
		errs = append(errs, errors.New(`tunnel.allow: is empty, so the tunnel leads nowhere; name addresses, such as "127.0.0.1:10250"`))
	}
	for i, address := range t.Allow {
		host, port, err := net.SplitHostPort(address)
		if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || host == "" || number == 0 {
			errs = append(errs, fmt.Errorf(`tunnel.allow[%d]: %q is not of the form host:port, such as "127.0.0.1:10250"`, i, address))
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLinkLocalUnicast() {
			errs = append(errs, fmt.Errorf("tunnel.allow[%d]: %q is local to the link, where clouds hand out a machine's credentials; it cannot be allowed", i, address))
		}
	}
	return errors.Join(errs...)
}
