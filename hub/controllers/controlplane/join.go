package controlplane

import (
	"net/url"
	"slices"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
)

// findJoinURLs tells where each working server can be joined, and from that where each machine joins.
func (s *scope) findJoinURLs() {
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
}

// joinURL keeps the URL that others have joined for as long as the machine has its address, so that a new address of the machine beside
// the old one restarts nobody. A machine that others cannot join yet has none.
func joinURL(c render.Cluster, m *machine) string {
	addresses := m.addresses()
	if captured := render.CapturedAddress(m.report.Status.PeriodicOutput); len(addresses) == 0 && captured != "" {
		addresses = []string{captured}
	}
	if len(addresses) == 0 {
		return m.state.JoinURL
	}
	if m.state.JoinURL == "" && !m.state.Joinable() {
		return ""
	}
	if u, err := url.Parse(m.state.JoinURL); err == nil && slices.Contains(addresses, u.Hostname()) {
		return render.JoinURL(c, u.Hostname())
	}
	return render.JoinURL(c, addresses[0])
}
