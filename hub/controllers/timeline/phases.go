package timeline

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The phases that are not named by the reason of a condition.
const (
	phaseReady          = "Ready"
	phasePaused         = "Paused"
	phaseDeleting       = "Deleting"
	phaseBootstrapData  = "WaitingForBootstrapData"
	phaseInfrastructure = "WaitingForInfrastructure"
	phasePlan           = "WaitingForPlan"
	phaseNode           = "WaitingForNode"
)

// present is the phase that something is in.
type present struct {
	name, message string
	outcome       Outcome
	// since is when the condition that it was read from changed its status; zero where it is not known.
	since metav1.Time
}

// running makes a phase of a condition that is not met.
func running(c *metav1.Condition, name string) present {
	if c == nil {
		return present{name: name, outcome: OutcomeRunning}
	}
	return present{name: cmp.Or(name, c.Reason), message: c.Message, outcome: OutcomeRunning, since: c.LastTransitionTime}
}

// stuck makes a phase of a condition by which False says that somebody has to act.
func stuck(c *metav1.Condition, name string) present {
	p := running(c, name)
	if c != nil && c.Status == metav1.ConditionFalse {
		p.outcome = OutcomeFailed
	}
	return p
}

func done(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }

// machinePhase says what a machine waits for, in the order in which it comes to be.
func machinePhase(m *clusterv1.Machine) present {
	get := func(conditionType string) *metav1.Condition { return conditions.Get(m, conditionType) }
	reconciled := get(rkev1.ReconciledCondition)
	custom := m.Spec.InfrastructureRef.APIGroup == rkev1.GroupVersion.Group
	switch {
	case !m.DeletionTimestamp.IsZero():
		c := get(clusterv1.DeletingCondition)
		if !done(c) {
			return present{name: phaseDeleting, outcome: OutcomeRunning, since: *m.DeletionTimestamp}
		}
		return running(c, "")
	case done(get(clusterv1.PausedCondition)):
		return running(get(clusterv1.PausedCondition), phasePaused)
	case !done(get(clusterv1.BootstrapConfigReadyCondition)):
		return running(get(clusterv1.BootstrapConfigReadyCondition), phaseBootstrapData)
	// Infrastructure of the hub's own is there once the Node is, and that is what comes last.
	case !custom && !done(get(clusterv1.InfrastructureReadyCondition)):
		return running(get(clusterv1.InfrastructureReadyCondition), phaseInfrastructure)
	case reconciled == nil:
		return running(nil, phasePlan)
	case !done(reconciled):
		return stuck(reconciled, "")
	case !m.Status.NodeRef.IsDefined():
		return running(get(clusterv1.MachineNodeReadyCondition), phaseNode)
	case isFalse(get(clusterv1.MachineHealthCheckSucceededCondition)):
		return stuck(get(clusterv1.MachineHealthCheckSucceededCondition), "")
	case !done(get(clusterv1.MachineNodeReadyCondition)):
		return running(get(clusterv1.MachineNodeReadyCondition), "")
	}
	return present{name: phaseReady, outcome: OutcomeReady}
}

func isFalse(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionFalse }

// clusterPhase says what a cluster as a whole waits for.
func (s *scope) clusterPhase() present {
	top := s.top()
	get := func(conditionType string) *metav1.Condition { return conditions.Get(top, conditionType) }
	switch {
	case !top.GetDeletionTimestamp().IsZero() && s.provisioning != nil:
		return running(get(provisioningv1.RemovedCondition), phaseDeleting)
	case !top.GetDeletionTimestamp().IsZero():
		return running(get(clusterv1.DeletingCondition), phaseDeleting)
	case s.capi != nil && ptr.Deref(s.capi.Spec.Paused, false), done(get(clusterv1.PausedCondition)):
		return running(get(clusterv1.PausedCondition), phasePaused)
	case s.provisioning != nil && done(get(provisioningv1.ReadyCondition)):
		return present{name: phaseReady, outcome: OutcomeReady}
	case s.provisioning != nil:
		return calmed(stuck(get(provisioningv1.ReadyCondition), ""))
	case s.controlPlane == nil:
		return running(nil, "WaitingForControlPlane")
	case conditions.IsTrue(s.controlPlane, rkev1.ReadyCondition):
		return present{name: phaseReady, outcome: OutcomeReady}
	}
	return stuck(conditions.Get(s.controlPlane, rkev1.ReadyCondition), "")
}

// calmed takes back a failure that is none: the Cluster is not ready while its objects are made.
func calmed(p present) present {
	if p.name == "" {
		p.name = "Creating"
	}
	if slices.Contains(calm, p.name) {
		p.outcome = OutcomeRunning
	}
	return p
}
