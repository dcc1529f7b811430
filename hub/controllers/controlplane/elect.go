package controlplane

import (
	"context"

	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// plan elects, renders and decides. What must not be decided on an old view is decided again on a new one: the caches may not have seen what
// an earlier pass or a hub before this one has written.
func (r *Reconciler) plan(ctx context.Context, s *scope) error {
	if err := r.look(ctx, s); err != nil || s.fresh || !s.risky() {
		return err
	}
	if err := r.loadFrom(ctx, s, r.Live); err != nil {
		return err
	}
	s.fresh = true
	return r.look(ctx, s)
}

func (r *Reconciler) look(ctx context.Context, s *scope) error {
	r.readNodes(ctx, s)
	s.electInitNode()
	s.findJoinURLs()
	if err := r.renderPlans(s); err != nil {
		return err
	}
	s.decide(r.Now())
	return nil
}

// risky tells whether something was decided that does harm if it is decided twice: two init nodes start two clusters, and two members of etcd
// that go down or come in at the same time may cost it its quorum.
func (s *scope) risky() bool {
	for _, m := range s.machines {
		if m.state.Init && !m.marked() || m.state.Etcd && m.decision.Deliver && m.state.Change != rollout.ChangeMinor {
			return true
		}
	}
	return false
}

// marked tells whether the machine's plan Secret has the mark of the init node.
func (m *machine) marked() bool {
	return m.secret != nil && m.secret.Labels[rkev1.InitNodeLabel] == "true"
}

// electInitNode decides which machine starts the cluster. The mark of a new one is written with its plan, or at once where the cluster is
// already there.
func (s *scope) electInitNode() {
	s.election = rollout.Elect(s.states(), s.controlPlane.Labels[rkev1.InitNodeMachineIDLabel], s.bootstrapped())
	for _, m := range s.machines {
		m.state.Init = m.machine.Name == s.election.Init
		m.facts.Init = m.state.Init
	}
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
