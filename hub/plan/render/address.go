package render

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/hub/plan/release"
)

// JoinURL is where other machines join a server at this address.
func JoinURL(c Cluster, address string) string {
	return "https://" + net.JoinHostPort(address, strconv.Itoa(supervisorPort(c)))
}

// supervisorPort is the TCP port at which servers take machines and commands of the distribution; k3s has it in common with the Kubernetes
// API.
func supervisorPort(c Cluster) int {
	if c.Release.Runtime == release.K3s {
		return APIPort(c)
	}
	return c.names().SupervisorPort
}

// listenPort is the argument with the port of the Kubernetes API. Only k3s has it.
const listenPort = "https-listen-port"

// APIPort is the TCP port of the Kubernetes API on the cluster's servers. Only k3s lets a cluster choose it.
func APIPort(c Cluster) int {
	if c.Release.Runtime == release.K3s {
		if port, err := toInt(c.Spec.MachineGlobalConfig.Data[listenPort]); err == nil {
			return int(port.(int64))
		}
	}
	return release.APIServerPort
}

// checkListenPort refuses a port that not all servers have: which one a machine or a client is to use for a server is known of all alike.
func (b *builder) checkListenPort() {
	if !b.Machine.server() || b.Cluster.Release.Runtime != release.K3s {
		return
	}
	port, set := b.args[listenPort].(int64)
	if !set {
		port = release.APIServerPort
	}
	if common := APIPort(b.Cluster); int(port) != common {
		b.problems.fail(b.fieldOf(listenPort), "must be set in machineGlobalConfig, for all servers alike: machines and clients use port %d",
			common)
	}
}

// loopback is the address at which probes reach the machine's own components: what the cluster prefers, or else that of the one family in
// which the distributions have them listen.
func (b *builder) loopback() string {
	var stack string
	if n := b.Cluster.Spec.Networking; n != nil {
		stack = n.StackPreference
	}
	switch {
	case stack == "ipv6", stack == "" && b.listensOn6():
		return "[::1]"
	case stack == "dual":
		return "localhost"
	}
	return "127.0.0.1"
}

// bindAddress is the argument with the one address at which servers listen.
const bindAddress = "bind-address"

// serverHost is the address at which the machine reaches its own server: that of bind-address, at which k3s has the Kubernetes API too, and
// RKE2 only its supervisor. It is the loopback address where the server listens at all.
func (b *builder) serverHost() string {
	return b.listensAt(b.args.text(bindAddress))
}

// listensAt is the host in the URL of what is to listen at an address; the loopback address if that is none, or stands for all addresses.
func (b *builder) listensAt(text string) string {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil || address.IsUnspecified():
		return b.loopback()
	case address.Is6():
		return "[" + address.String() + "]"
	}
	return address.String()
}

// listensOn6 reports whether the components of the machine listen on ::1, and not on 127.0.0.1: the first range of the Services is one of
// IPv6. Without ranges in the configuration, the distributions choose those of the family of the machine's first address.
func (b *builder) listensOn6() bool {
	if cidrs := b.all.words("service-cidr"); len(cidrs) > 0 {
		return prefix6(cidrs[0])
	}
	ips := b.args.words("node-ip")
	if len(ips) == 0 {
		ips = b.internalIPs(false)
	}
	return len(ips) > 0 && is6(ips[0])
}

// internalIPs are the machine's internal addresses that its Node can have, those of one family first.
func (b *builder) internalIPs(sixFirst bool) []string {
	return byFamily(slices.DeleteFunc(slices.Clone(b.Machine.InternalAddresses), notIP), sixFirst)
}

// addAddresses tells the distribution the addresses that the machine's owner gave. Without any, the distribution finds its own.
func (b *builder) addAddresses() {
	m := b.Machine
	// The family of the Services' first range comes first, as the distributions want it.
	sixFirst := false
	if cidrs := b.all.words("service-cidr"); len(cidrs) > 0 {
		sixFirst = prefix6(cidrs[0])
	}
	b.args.extend("node-ip", otherFamilies(b.args.words("node-ip"), b.internalIPs(sixFirst))...)
	ips := b.args.words("node-ip")
	b.checkFamilies(ips)

	own := func(a string) bool { return slices.Contains(ips, a) || linkLocal(a) }
	external := slices.DeleteFunc(byFamily(m.Addresses, sixFirst), own)
	// Without an internal address the kubelet would detect one and might take the external one, which the Node then had twice.
	if b.args.text("cloud-provider-name") == "" && len(ips) > 0 {
		addresses := slices.DeleteFunc(slices.Clone(external), notIP)
		b.args.extend("node-external-ip", missing(b.args.words("node-external-ip"), addresses)...)
	}
	if !m.server() {
		return
	}
	if len(ips) > 0 && len(external) > 0 && b.args.text("advertise-address") == "" {
		b.args["advertise-address"] = ips[0]
	}
	// Whatever the hub or another machine may call this server by must be in its certificate.
	sans := slices.Concat(external, b.internalIPs(sixFirst))
	if m.ControlPlane {
		sans = append(sans, strings.Trim(b.Cluster.Endpoint, "[]"), m.DetectedAddress)
		if b.Cluster.Spec.LocalClusterAuthEndpoint.Enabled {
			sans = append(sans, b.authEndpointHost())
		}
	}
	sans = slices.DeleteFunc(sans, func(s string) bool { return s == "" || own(s) })
	b.args.extend("tls-san", missing(b.args.words("tls-san"), sans)...)
}

// checkFamilies refuses addresses of a Node that lack a family of the Pods' ranges: the distributions end at each start with them. Without
// any address, they look for those of the host.
func (b *builder) checkFamilies(ips []string) {
	if len(ips) == 0 || b.Machine.windows() {
		return
	}
	for _, cidr := range b.all.words("cluster-cidr") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil || slices.ContainsFunc(ips, func(ip string) bool { return is6(ip) == prefix.Addr().Is6() }) {
			continue
		}
		b.problems.fail("machine "+b.Machine.Name, "has the internal addresses %s only, and none of the family of %s, which is in %s; "+
			"set annotation rke.cattle.io/internal-address of its RKEBootstrap to addresses of all families",
			strings.Join(ips, ", "), cidr, b.fieldOf("cluster-cidr"))
	}
}

// checkRanges warns of ranges of Pods and of Services that have different families, or the same ones in another order: the distributions
// end at each start with them. One of both that is not set is a single range.
func (b *builder) checkRanges() {
	if !b.Machine.server() {
		return
	}
	const pods, services = "cluster-cidr", "service-cidr"
	const hint = "k3s and RKE2 start only if both have the same families in the same order; set them before the cluster starts"
	ofPods, ofServices := families(b.all.words(pods)), families(b.all.words(services))
	switch {
	case ofPods == ofServices:
	case ofPods != "" && ofServices != "":
		b.problems.doubt(b.fieldOf(services), "has %s, and %s has %s: %s", ofServices, pods, ofPods, hint)
	case ofServices == "IPv4" || ofServices == "IPv6" || ofPods == "IPv4" || ofPods == "IPv6":
		// The other range gets the family of the machine's first address.
	case ofServices != "":
		b.problems.doubt(b.fieldOf(services), "has %s, and %s is not set: %s", ofServices, pods, hint)
	default:
		b.problems.doubt(b.fieldOf(pods), "has %s, and %s is not set: %s", ofPods, services, hint)
	}
}

// families are those of ranges, in their order; empty for no range.
func families(cidrs []string) string {
	var out []string
	for _, cidr := range cidrs {
		family := "IPv4"
		if prefix6(cidr) {
			family = "IPv6"
		}
		out = append(out, missing(out, []string{family})...)
	}
	return strings.Join(out, " and ")
}

// authEndpointHost is the name of the authorized cluster endpoint as it is in certificates, without the port that may follow it.
func (b *builder) authEndpointHost() string {
	fqdn := b.Cluster.Spec.LocalClusterAuthEndpoint.FQDN
	if strings.Contains(fqdn, "/") {
		b.problems.warn("spec.localClusterAuthEndpoint.fqdn",
			"is a URL; it takes a name, with a port other than 443 behind it, such as api.example.com:6443; it was left out")
		return ""
	}
	if host, _, err := net.SplitHostPort(fqdn); err == nil {
		return host
	}
	return strings.Trim(fqdn, "[]")
}

// prefix6 reports whether a range of addresses is one of IPv6.
func prefix6(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Addr().Is6()
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

// otherFamilies returns the first address of each family of which there is none in have: a kubelet takes one address of each only.
func otherFamilies(have, add []string) []string {
	var out []string
	for _, address := range add {
		if !slices.ContainsFunc(slices.Concat(have, out), func(other string) bool { return is6(other) == is6(address) }) {
			out = append(out, address)
		}
	}
	return out
}

// linkLocal tells of an address that no other machine can use.
func linkLocal(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsLinkLocalUnicast()
}

// notIP tells of what cannot be an address of a Node: names, and addresses that no other machine can use.
func notIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err != nil || linkLocal(address)
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
