package controlplane

import (
	"context"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
)

// findJoinURLs tells where each working server can be joined, and from that where each machine joins.
func (r *Reconciler) findJoinURLs(_ context.Context, s *scope) error {
	common := render.Cluster{Spec: s.controlPlane.Spec, Release: s.release}
	for _, m := range s.machines {
		if !m.state.Server() || m.secret == nil || m.secret.Annotations[rkev1.JoinURLAutosetDisabledAnnotation] == "true" {
			continue
		}
		m.state.JoinURL = joinURL(common, m)
	}
	states := s.states()
	for _, m := range s.machines {
		m.joinURL = rollout.JoinURL(states, m.state, string(m.machine.UID))
	}
	return nil
}

// joinURL keeps the URL that others have joined for as long as the machine has its address, so that a new address of the machine beside
// the old one restarts nobody. A machine that has never worked has none.
func joinURL(c render.Cluster, m *machine) string {
	addresses := m.addresses()
	if len(addresses) == 0 {
		return m.state.JoinURL
	}
	if m.state.JoinURL == "" && !m.state.Working() {
		return ""
	}
	if u, err := url.Parse(m.state.JoinURL); err == nil && slices.Contains(addresses, u.Hostname()) {
		return render.JoinURL(c, u.Hostname())
	}
	return render.JoinURL(c, addresses[0])
}

// addresses are the machine's, best first: what its Node says, then what its user gave, then what it looked like to the hub.
func (m *machine) addresses() []string {
	var out []string
	add := func(addresses ...string) {
		for _, a := range addresses {
			if a != "" && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	for _, wanted := range []clusterv1.MachineAddressType{clusterv1.MachineAddressType(corev1.NodeInternalIP), clusterv1.MachineAddressType(corev1.NodeExternalIP)} {
		for _, a := range m.machine.Status.Addresses {
			if a.Type == wanted {
				add(a.Address)
			}
		}
		if wanted == clusterv1.MachineAddressType(corev1.NodeInternalIP) {
			add(m.facts.InternalAddresses...)
		}
	}
	add(m.facts.Addresses...)
	add(m.facts.DetectedAddress)
	return out
}
