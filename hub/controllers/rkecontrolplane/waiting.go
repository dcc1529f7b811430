package rkecontrolplane

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

// waitingMark is the value of cluster.x-k8s.io/skip-remediation on a machine that waits for its first plan, and for a while after that.
const waitingMark = "rke.cattle.io/waiting-for-plan"

const (
	// waitMarkedAfter is how long a machine waits before it is marked. Most get their plan before, and cause no write.
	waitMarkedAfter = 3 * time.Minute
	// startupTime is how long a marked machine has from its first plan to its Node.
	startupTime = 20 * time.Minute
)

// protectWaiting keeps health checks from replacing machines that have no Node because the hub has not let them join yet: servers join
// one after the other, workers after all servers, and no machine joins while servers change their version or a role is missing. The clock
// of a health check runs meanwhile, and a new machine would wait for the same.
func (s *scope) protectWaiting(m *machine, k *marks) {
	protected, after := m.waitsForPlan(k.skip == waitingMark, s.now)
	s.requeue(after)
	if k.restoring == "" {
		k.setSkip(waitingMark, protected)
	}
}

// protectPaused does that for the machines of a paused RKEControlPlane, which may not join before it is unpaused. While the Cluster itself
// is paused, Cluster API replaces none.
func (r *Reconciler) protectPaused(ctx context.Context, s *scope) error {
	if s.cluster == nil || ptr.Deref(s.cluster.Spec.Paused, false) || !s.controlPlane.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.loadMachines(ctx, s); err != nil {
		return err
	}
	return r.markMachines(ctx, s, s.protectWaiting)
}

// waitsForPlan reports whether no health check may replace the machine yet, and when to look again; zero for after any change. Machines
// outside of MachineSets are not replaced. The clock of a health check begins when the infrastructure is ready, or with the Machine.
func (m *machine) waitsForPlan(marked bool, now time.Time) (protected bool, after time.Duration) {
	if m.state.Deleting || m.secret == nil || m.machine.Status.NodeRef.IsDefined() || !inMachineSet(m.machine) {
		return false, 0
	}
	if m.state.Progress != rollout.ProgressNone {
		if !marked {
			return false, 0
		}
		left := plansecrets.UntilProgressShown(m.secret, startupTime, now)
		return left > 0, left
	}
	if marked || m.decision.Deliver || m.state.Unusable != "" {
		return marked, 0
	}
	since := m.machine.CreationTimestamp.Time
	if c := conditions.Get(m.machine, clusterv1.MachineInfrastructureReadyCondition); c != nil && c.Status == metav1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	left := max(0, since.Add(waitMarkedAfter).Sub(now))
	return left == 0, left
}
