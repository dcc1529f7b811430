package controlplane

import (
	"context"

	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// electInitNode decides which machine starts the cluster. The mark of a new one is written with its plan, or at once where the cluster is
// already there.
func (r *Reconciler) electInitNode(ctx context.Context, s *scope) error {
	election := s.elect()
	if election.Init != "" && !s.marked(election.Init) {
		// The cache may not have seen a mark that an earlier pass has set, and two init nodes would start two clusters.
		if err := r.loadFrom(ctx, s, r.Live); err != nil {
			return err
		}
		election = s.elect()
	}
	for _, m := range s.machines {
		m.state.Init = m.machine.Name == election.Init
		m.facts.Init = m.state.Init
	}
	s.election = election
	return nil
}

func (s *scope) elect() rollout.Election {
	return rollout.Elect(s.states(), s.controlPlane.Labels[rkev1.InitNodeMachineIDLabel], s.bootstrapped())
}

// marked tells whether a machine alone has the mark of the init node.
func (s *scope) marked(name string) bool {
	for _, m := range s.machines {
		if m.state.Init != (m.machine.Name == name) {
			return false
		}
	}
	return true
}

func (s *scope) states() []rollout.Machine {
	states := make([]rollout.Machine, 0, len(s.machines))
	for _, m := range s.machines {
		states = append(states, m.state)
	}
	return states
}

func isInitialized(c *rkev1.RKEControlPlane) bool {
	return ptr.Deref(c.Status.Initialization.ControlPlaneInitialized, false)
}
