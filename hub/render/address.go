package render

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/drover-dev/drover/hub/release"
)

// JoinURL is where other machines join a server at this address.
func JoinURL(c Cluster, address string) string {
	port := c.names().SupervisorPort
	if c.Release.Runtime == release.K3s {
		port = APIPort(c)
	}
	return "https://" + net.JoinHostPort(address, strconv.Itoa(port))
}

// APIPort is the TCP port of the Kubernetes API on the cluster's servers. Only k3s lets a cluster choose it.
func APIPort(c Cluster) int {
	if c.Release.Runtime == release.K3s {
		if port, err := toInt(c.Spec.MachineGlobalConfig.Data["https-listen-port"]); err == nil {
			return int(port.(int64))
		}
	}
	return release.APIServerPort
}

// loopback is the address at which probes reach the machine's own components.
func (b *builder) loopback() string {
	var stack string
	if n := b.Cluster.Spec.Networking; n != nil {
		stack = n.StackPreference
	}
	switch stack {
	case "ipv6":
		return "[::1]"
	case "dual":
		return "localhost"
	}
	return "127.0.0.1"
}

// addAddresses tells the distribution the addresses that the machine's owner gave. Without any, the distribution finds its own.
func (b *builder) addAddresses() {
	m := b.Machine
	family := b.family()
	internal := byFamily(m.InternalAddresses, family)
	b.args.extend("node-ip", missing(b.args.list("node-ip"), internal)...)

	external := byFamily(m.Addresses, family)
	external = slices.DeleteFunc(external, func(a string) bool { return slices.Contains(b.args.list("node-ip"), a) || linkLocal6(a) })
	if b.args.text("cloud-provider-name") == "" {
		b.args.extend("node-external-ip", missing(b.args.list("node-external-ip"), external)...)
	}
	if !m.server() {
		return
	}
	if ips := b.args.list("node-ip"); len(ips) > 0 && len(external) > 0 && b.args.text("advertise-address") == "" {
		b.args["advertise-address"] = ips[0]
	}
	// Whatever the hub or another machine may call this server by must be in its certificate.
	sans := slices.Clone(external)
	if m.ControlPlane {
		sans = append(sans, b.Cluster.Endpoint, m.DetectedAddress)
	}
	sans = slices.DeleteFunc(sans, func(s string) bool { return s == "" || slices.Contains(b.args.list("node-ip"), s) })
	b.args.extend("tls-san", missing(b.args.list("tls-san"), sans)...)
}

// family tells whether IPv6 addresses come first: the Services' first range decides.
func (b *builder) family() (sixFirst bool) {
	cidrs := b.args.list("service-cidr")
	if len(cidrs) == 0 {
		return false
	}
	p, err := netip.ParsePrefix(firstOf(cidrs[0]))
	return err == nil && p.Addr().Is6()
}

// firstOf returns the part before the first comma.
func firstOf(s string) string {
	for i := range s {
		if s[i] == ',' {
			return s[:i]
		}
	}
	return s
}

// byFamily sorts addresses so that those of the preferred family come first, each family in the order given.
func byFamily(addresses []string, sixFirst bool) []string {
	out := slices.Clone(addresses)
	slices.SortStableFunc(out, func(a, b string) int {
		if is6(a) == is6(b) {
			return 0
		}
		if is6(a) == sixFirst {
			return -1
		}
		return 1
	})
	return out
}

func is6(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Is6()
}

func linkLocal6(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.Is6() && a.IsLinkLocalUnicast()
}

// missing returns what of add is not in have, without duplicates.
func missing(have, add []string) []string {
	var out []string
	for _, s := range add {
		if !slices.Contains(have, s) && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
