package machinestate

import (
	"encoding/json"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// Addresses are the IP addresses of a machine. As JSON they are the value of rke.cattle.io/infrastructure-addresses.
type Addresses struct {
	// Internal addresses, of type InternalIP.
	Internal []string `json:"internal,omitempty"`
	// External addresses, of type ExternalIP.
	External []string `json:"external,omitempty"`
}

// Empty reports whether there is no address at all.
func (a Addresses) Empty() bool { return len(a.Internal)+len(a.External) == 0 }

// Encode returns the JSON; empty for no addresses.
func (a Addresses) Encode() string {
	if a.Empty() {
		return ""
	}
	raw, _ := json.Marshal(a) // strings cannot fail
	return string(raw)
}

// ReportedAddresses are those that the infrastructure provider reports in the status of a Machine, if others can reach the machine
// by them. endpoint is the host of the control plane's endpoint, which may move from server to server and belongs to none. Those of a
// machine of a node driver are the driver's: the Machine has them only after it has a Node, and those of the Node beside them.
func ReportedAddresses(machine *clusterv1.Machine, bootstrap *rkev1.RKEBootstrap, endpoint string) (reported Addresses) {
	shared, _ := netip.ParseAddr(endpoint) // IPv6 has several spellings of one address
	usable := func(address string) bool {
		ip, err := netip.ParseAddr(address)
		return err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && ip != shared
	}
	if HasNodeDriver(machine) {
		given := bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation]
		if json.Unmarshal([]byte(given), &reported) != nil {
			return Addresses{} // it is written again
		}
		unusable := func(address string) bool { return !usable(address) }
		reported.Internal = slices.DeleteFunc(reported.Internal, unusable)
		reported.External = slices.DeleteFunc(reported.External, unusable)
		return reported
	}
	for _, a := range machine.Status.Addresses {
		if !usable(a.Address) {
			continue
		}
		switch a.Type {
		case clusterv1.MachineInternalIP:
			reported.Internal = append(reported.Internal, a.Address)
		case clusterv1.MachineExternalIP:
			reported.External = append(reported.External, a.Address)
		}
	}
	return reported
}

// NodeAddresses are those in the status of a Node.
func NodeAddresses(node *corev1.Node) (a Addresses) {
	for _, address := range node.Status.Addresses {
		switch address.Type {
		case corev1.NodeInternalIP:
			a.Internal = append(a.Internal, address.Address)
		case corev1.NodeExternalIP:
			a.External = append(a.External, address.Address)
		}
	}
	return a
}

// SelectAddresses selects what a plan contains of the reported addresses; stored is the last selection, and given is whether the machine
// was given a plan already. Some providers report every address that a machine ever shows, those of Pods and virtual ones among them, in
// changing order. So one of each kind and family is selected, and kept while it is reported: a new address restarts no machine. A machine
// that was given a plan without an internal address, as of a provider that reports none before the machine runs, has chosen its own: a
// member of etcd that gets another one does not start.
func SelectAddresses(stored, reported Addresses, ipv6, given bool) Addresses {
	if given && len(stored.Internal) == 0 {
		reported.Internal = nil
	}
	choose := func(stored, reported []string) []string {
		gone := func(address string) bool { return !slices.Contains(reported, address) }
		if len(reported) == 0 || len(stored) > 0 && !slices.ContainsFunc(stored, gone) {
			return stored
		}
		return onePerFamily(reported, ipv6)
	}
	return Addresses{Internal: choose(stored.Internal, reported.Internal), External: choose(stored.External, reported.External)}
}

// onePerFamily returns the first IPv4 address and, if ipv6 is set, the first IPv6 address.
func onePerFamily(addresses []string, ipv6 bool) []string {
	var out []string
	seen := map[bool]bool{}
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a)
		is6 := ip.Is6() && !ip.Is4In6()
		if err != nil || seen[is6] || is6 && !ipv6 {
			continue
		}
		seen[is6] = true
		out = append(out, a)
	}
	return out
}
