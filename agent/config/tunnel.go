package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// Tunnel configures the reverse tunnel: the hub connects to addresses through this machine, over a connection that the agent opens.
type Tunnel struct {
	// Enabled connects the tunnel; it needs remoteEnabled.
	Enabled bool `json:"enabled"`
	// Allow lists the TCP addresses, host:port, that the hub may connect to.
	Allow []string `json:"allow"`
}

func (t Tunnel) validate(remote bool) error {
	var errs []error
	if t.Enabled && !remote {
		errs = append(errs, errors.New("tunnel.enabled: requires remoteEnabled"))
	}
	if t.Enabled && len(t.Allow) == 0 {
		errs = append(errs, errors.New(`tunnel.allow: is required if tunnel.enabled is true; for example "127.0.0.1:10250"`))
	}
	for i, address := range t.Allow {
		host, port, err := net.SplitHostPort(address)
		if number, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || host == "" || number == 0 {
			errs = append(errs, fmt.Errorf(`tunnel.allow[%d]: must be host:port such as "127.0.0.1:10250", got %q`, i, address))
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLinkLocalUnicast() {
			errs = append(errs, fmt.Errorf(
				"tunnel.allow[%d]: %q is a link-local address, on which clouds serve a machine's credentials; it cannot be allowed", i, address))
		}
	}
	return errors.Join(errs...)
}
