package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/render"
)

// readFacts makes what a plan needs to know of the machine.
func (m *machine) readFacts(s *scope) {
	labels, annotations := m.bootstrap.Labels, m.bootstrap.Annotations
	role := func(label string) bool { return labels[label] == "true" || m.machine.Labels[label] == "true" }
	m.facts = render.Machine{
		Name: m.machine.Name, UID: string(m.machine.UID), Labels: m.machine.Labels, OS: labels[rkev1.OSLabel],
		Etcd: role(rkev1.EtcdRoleLabel), ControlPlane: role(rkev1.ControlPlaneRoleLabel), Worker: role(rkev1.WorkerRoleLabel),
		NodeName: labels[rkev1.NodeNameLabel], Addresses: splitList(annotations[rkev1.AddressAnnotation]),
		InternalAddresses: splitList(annotations[rkev1.InternalAddressAnnotation]), DetectedAddress: annotations[rkev1.DetectedAddressAnnotation],
	}
	m.factsErr = errors.Join(
		decodeAnnotation(annotations, rkev1.LabelsAnnotation, &m.facts.NodeLabels),
		decodeAnnotation(annotations, rkev1.TaintsAnnotation, &m.facts.NodeTaints),
	)
	m.reported, m.settled = m.reportedAddresses(s.endpoint().Host), addressSet{}
	if machinestate.Foreign(m.machine) {
		m.facts.ProviderID = m.machine.Spec.ProviderID
		m.settled = settle(m.storedAddresses(), m.reported, usesIPv6(s.controlPlane.Spec))
	}
	// What the machine's owner says about its addresses goes before what its infrastructure does.
	if len(m.facts.Addresses) == 0 {
		m.facts.Addresses = m.settled.External
	}
	if len(m.facts.InternalAddresses) == 0 {
		m.facts.InternalAddresses = m.settled.Internal
	}
}

// addressSet is what a plan says about a machine's addresses.
type addressSet struct {
	Internal []string `json:"internal,omitempty"`
	External []string `json:"external,omitempty"`
}

func (a addressSet) empty() bool { return len(a.Internal)+len(a.External) == 0 }

// encode is the form of the annotation; empty for none.
func (a addressSet) encode() string {
	if a.empty() {
		return ""
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return ""
	}
	return string(raw)
}

// storedAddresses are those that the machine's last plan was made with. An annotation that is damaged counts as none.
func (m *machine) storedAddresses() addressSet {
	var stored addressSet
	if m.secret == nil || decodeAnnotation(m.secret.Annotations, rkev1.InfrastructureAddressesAnnotation, &stored) != nil {
		return addressSet{}
	}
	return stored
}

// reportedAddresses are those that Cluster API has from the machine's infrastructure, as far as a machine can be reached by them. The
// address of the control plane's endpoint may sit on any server and belongs to none.
func (m *machine) reportedAddresses(endpoint string) addressSet {
	var reported addressSet
	for _, a := range m.machine.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || a.Address == endpoint {
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

// settle chooses what a plan says about addresses. Some providers report every address that a machine ever shows, those of Pods and
// virtual ones among them, and report them in changing order. So no more than one of each kind and family is taken, and it is kept for as
// long as it is reported: an address that comes later restarts nobody.
func settle(stored, reported addressSet, ipv6 bool) addressSet {
	choose := func(stored, reported []string) []string {
		if len(reported) == 0 {
			return stored
		}
		gone := func(address string) bool { return !slices.Contains(reported, address) }
		if len(stored) > 0 && !slices.ContainsFunc(stored, gone) {
			return stored
		}
		return onePerFamily(reported, ipv6)
	}
	return addressSet{Internal: choose(stored.Internal, reported.Internal), External: choose(stored.External, reported.External)}
}

// onePerFamily takes the first IPv4 address and, where the cluster has use for it, the first IPv6 address.
func onePerFamily(addresses []string, ipv6 bool) []string {
	var out []string
	seen := map[bool]bool{}
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a)
		six := ip.Is6() && !ip.Is4In6()
		if err != nil || seen[six] || six && !ipv6 {
			continue
		}
		seen[six] = true
		out = append(out, a)
	}
	return out
}

// usesIPv6 tells whether the cluster has IPv6: its networks say so, or its author does.
func usesIPv6(spec rkev1.RKEControlPlaneSpec) bool {
	if n := spec.Networking; n != nil && (n.StackPreference == "dual" || n.StackPreference == "ipv6") {
		return true
	}
	for _, key := range []string{"cluster-cidr", "service-cidr"} {
		if strings.Contains(fmt.Sprint(spec.MachineGlobalConfig.Data[key]), ":") {
			return true
		}
	}
	return false
}

// decodeAnnotation reads JSON; an annotation that is not there leaves into as it is.
func decodeAnnotation(annotations map[string]string, key string, into any) error {
	if annotations[key] == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(annotations[key]), into); err != nil {
		return fmt.Errorf("annotation %s of the machine's RKEBootstrap: %w", key, err)
	}
	return nil
}

// splitList splits a list of addresses, which people separate by commas.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// addresses are the machine's, best first: those that its certificate names, then what its Node or its infrastructure says, then what its
// user gave, then what it looked like to the hub.
func (m *machine) addresses() []string {
	var out []string
	for _, addresses := range [][]string{
		m.settled.Internal, m.reported.Internal, m.facts.InternalAddresses, m.settled.External, m.reported.External, m.facts.Addresses, {m.facts.DetectedAddress},
	} {
		for _, a := range addresses {
			if a != "" && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}
