package timeline

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// The phases that are not named by the reason of a condition.
const (
	phaseReady          = "Ready"
	phasePaused         = "Paused"
	phaseDeleting       = "Deleting"
	phaseCreating       = "Creating"
	phaseBootstrapData  = "WaitingForBootstrapData"
	phaseInfrastructure = "WaitingForInfrastructure"
	phasePlan           = "WaitingForPlan"
	phaseNode           = "WaitingForNode"
)

// running makes a phase of a condition that is not met. Without a name it has the name of the condition's reason.
func running(c *metav1.Condition, name string) timelines.Phase {
	if c == nil {
		return timelines.Phase{Name: name, Outcome: timelines.OutcomeRunning}
	}
	return timelines.Phase{Name: cmp.Or(name, c.Reason), Message: c.Message, Outcome: timelines.OutcomeRunning, Start: c.LastTransitionTime}
}

// failedOrRunning makes a phase of a condition that is False if a user has to act.
func failedOrRunning(c *metav1.Condition) timelines.Phase {
	p := running(c, "")
	if c != nil && c.Status == metav1.ConditionFalse {
		p.Outcome = timelines.OutcomeFailed
	}
	return p
}

// ignoreBenign changes a failure for a benign reason: a Cluster is not ready while its objects are created.
func ignoreBenign(p timelines.Phase) timelines.Phase {
	p.Name = cmp.Or(p.Name, phaseCreating)
	if reasons.Get(p.Name).Benign {
		p.Outcome = timelines.OutcomeRunning
	}
	return p
}

// machinePhase returns the first of these that applies; the order is that of a machine's life.
//
//	being deleted                        Deleting, or the reason of Deleting or EtcdMemberRemoved
//	paused                               Paused
//	no bootstrap data                    WaitingForBootstrapData
//	no infrastructure yet                WaitingForInfrastructure
//	plan not applied                     WaitingForPlan, or the reason of Reconciled
//	no Node                              WaitingForNode
//	failed MachineHealthCheck            its reason
//	Node not ready                       the reason of NodeReady
//	else                                 Ready
func machinePhase(m *clusterv1.Machine) timelines.Phase {
	get := func(conditionType string) *metav1.Condition { return conditions.Get(m, conditionType) }
	isTrue := func(conditionType string) bool { return conditions.IsTrue(m, conditionType) }
	switch {
	case !m.DeletionTimestamp.IsZero() && isTrue(clusterv1.DeletingCondition):
		return deletionPhase(get(clusterv1.DeletingCondition), get(rkev1.EtcdMemberRemovedCondition))
	case !m.DeletionTimestamp.IsZero():
		return timelines.Phase{Name: phaseDeleting, Outcome: timelines.OutcomeRunning, Start: *m.DeletionTimestamp}
	case isTrue(clusterv1.PausedCondition):
		return running(get(clusterv1.PausedCondition), phasePaused)
	case !isTrue(clusterv1.BootstrapConfigReadyCondition):
		return running(get(clusterv1.BootstrapConfigReadyCondition), phaseBootstrapData)
	case waitsForInfrastructure(m):
		return running(get(clusterv1.InfrastructureReadyCondition), phaseInfrastructure)
	case !conditions.Has(m, rkev1.ReconciledCondition):
		return running(nil, phasePlan)
	case !isTrue(rkev1.ReconciledCondition):
		return withNode(failedOrRunning(get(rkev1.ReconciledCondition)), get(clusterv1.MachineNodeReadyCondition))
	case !m.Status.NodeRef.IsDefined():
		return running(get(clusterv1.MachineNodeReadyCondition), phaseNode)
	case conditions.IsFalse(m, clusterv1.MachineHealthCheckSucceededCondition):
		return failedOrRunning(get(clusterv1.MachineHealthCheckSucceededCondition))
	case !isTrue(clusterv1.MachineNodeReadyCondition):
		return running(get(clusterv1.MachineNodeReadyCondition), "")
	}
	return timelines.Phase{Name: phaseReady, Outcome: timelines.OutcomeReady}
}

// deletionPhase is what Cluster API waits for. Where that is the hook of a member of etcd, whose name says nothing, it is what the removal
// of the member waits for.
func deletionPhase(deleting, member *metav1.Condition) timelines.Phase {
	if deleting.Reason == clusterv1.MachineDeletingWaitingForPreTerminateHookReason && member != nil && member.Status != metav1.ConditionTrue {
		return running(member, "")
	}
	return running(deleting, "")
}

// withNode adds to a wait for the Node what its kubelet says, or what Cluster API says that cannot reach it.
func withNode(p timelines.Phase, node *metav1.Condition) timelines.Phase {
	if p.Name == rollout.ReasonWaitingForNode && node != nil && node.Status != metav1.ConditionTrue && node.Message != "" {
		p.Message += ": " + strings.TrimPrefix(node.Message, "* ")
	}
	return p
}

// waitsForInfrastructure reports whether the machine does not exist yet. The infrastructure of a custom machine, and that of a node
// driver, is ready only when its Node exists: the plan of the latter says whether it has been created.
func waitsForInfrastructure(m *clusterv1.Machine) bool {
	switch {
	case !machinestate.HasProvider(m) || conditions.IsTrue(m, clusterv1.InfrastructureReadyCondition):
		return false
	case machinestate.HasNodeDriver(m):
		reconciled := conditions.Get(m, rkev1.ReconciledCondition)
		return reconciled == nil || reconciled.Reason == rollout.ReasonWaitingForInfrastructure
	}
	return true
}

// clusterPhase is the phase of the cluster as a whole.
func (s *scope) clusterPhase() timelines.Phase {
	cluster := s.clusterObject()
	get := func(conditionType string) *metav1.Condition { return conditions.Get(cluster, conditionType) }
	switch {
	case !cluster.GetDeletionTimestamp().IsZero() && s.provisioning != nil:
		return running(get(provisioningv1.RemovedCondition), phaseDeleting)
	case !cluster.GetDeletionTimestamp().IsZero():
		return running(get(clusterv1.DeletingCondition), phaseDeleting)
	case s.capi != nil && ptr.Deref(s.capi.Spec.Paused, false), conditions.IsTrue(cluster, clusterv1.PausedCondition):
		return running(get(clusterv1.PausedCondition), phasePaused)
	case s.controlPlane != nil && conditions.IsTrue(s.controlPlane, clusterv1.PausedCondition):
		// Its annotation alone pauses it, and its other conditions are those of before.
		return running(conditions.Get(s.controlPlane, clusterv1.PausedCondition), phasePaused)
	case s.refused():
		return ignoreBenign(failedOrRunning(get(provisioningv1.RKEClusterCondition)))
	case s.provisioning != nil && conditions.IsTrue(cluster, provisioningv1.ReadyCondition):
		return timelines.Phase{Name: phaseReady, Outcome: timelines.OutcomeReady}
	case s.provisioning != nil:
		return ignoreBenign(failedOrRunning(get(provisioningv1.ReadyCondition)))
	case s.controlPlane == nil:
		return running(nil, reasons.WaitingForControlPlane)
	case conditions.IsTrue(s.controlPlane, rkev1.ReadyCondition):
		return timelines.Phase{Name: phaseReady, Outcome: timelines.OutcomeReady}
	}
	return failedOrRunning(conditions.Get(s.controlPlane, rkev1.ReadyCondition))
}

// refused reports whether something in the spec of the Cluster is not acted on: its machines may all be ready, with what was asked for
// before. What has no effect on an imported cluster changes nothing of it.
func (s *scope) refused() bool {
	return s.provisioning != nil && s.provisioning.Spec.RKEConfig != nil &&
		conditions.IsFalse(s.provisioning, provisioningv1.RKEClusterCondition)
}
