package rkecontrolplane

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/api/fieldsupport"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/message"
)

// Conditions of an RKEControlPlane beyond those of rkev1 and of Cluster API.
const (
	// ConfigurationAcceptedCondition is false while something in the specification was left out of the plans or keeps them from being
	// rendered.
	ConfigurationAcceptedCondition = "ConfigurationAccepted"
	// KubeconfigReadyCondition is true while there is a kubeconfig that the hub uses.
	KubeconfigReadyCondition = "KubeconfigReady"
)

// ownedConditions of an RKEControlPlane are written by this controller only.
var ownedConditions = []string{
	clusterv1.PausedCondition, rkev1.ReadyCondition, rkev1.ProvisionedCondition, rkev1.BootstrappedCondition, rkev1.StableCondition,
	rkev1.ReconciledCondition, rkev1.UpdatedCondition, ConfigurationAcceptedCondition, KubeconfigReadyCondition,
	rkev1.CertificatesValidCondition,
	clusterv1.AvailableCondition, clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition,
	clusterv1.MachinesReadyCondition, clusterv1.MachinesUpToDateCondition, clusterv1.RemediatingCondition, clusterv1.DeletingCondition,
}

// setStatus sets the status by what a reconcile has found. err is what it failed with.
func setStatus(s *scope, err error) {
	status, undecided := &s.controlPlane.Status, s.undecided(err)
	if !undecided {
		status.ObservedGeneration = s.controlPlane.Generation
	}
	setReplicas(s)
	setInitialized(s)
	setPhases(s, err)
	setConfigurationAccepted(s)
	if s.certificates != nil {
		conditions.Set(s.controlPlane, *s.certificates)
	}
	setContractConditions(s)
	setDeleting(s)
	status.Ready = conditions.IsTrue(s.controlPlane, rkev1.ReadyCondition)
	if status.Ready && !undecided {
		status.AppliedSpec = s.controlPlane.Spec.DeepCopy()
		fieldsupport.Clear(status.AppliedSpec)
	}
}

// undecided reports whether a conflict ended the reconcile before anything was decided. Ready is about the generation before then.
func (s *scope) undecided(err error) bool {
	return err == nil && s.outcome == nil && s.wait == (rollout.Wait{}) && s.controlPlane.DeletionTimestamp.IsZero()
}

// setInitialized reports once that the cluster's API was reached. By Cluster API's contract it never becomes false again.
func setInitialized(s *scope) {
	status := &s.controlPlane.Status
	if slices.ContainsFunc(s.controlPlaneMachines(), (*machine).servesAPI) {
		status.Initialization.ControlPlaneInitialized = new(true)
	}
	status.Initialized = isInitialized(s.controlPlane)
	status.ExternalManagedControlPlane = new(false)
}

// setPhases sets the conditions of the cluster as a whole.
func setPhases(s *scope, err error) {
	wait := s.wait
	switch {
	case !s.controlPlane.DeletionTimestamp.IsZero():
		s.explainDeletion(err)
		wait = rollout.Wait{Reason: rollout.ReasonDeleting, Message: s.deleting}
	case err != nil:
		// What the cluster waits for is unknown, but it must not seem to wait for nothing.
		wait = rollout.Wait{Reason: clusterv1.InternalErrorReason, Message: "Reconciling failed, retrying: " + message.Stable(err)}
	case wait != (rollout.Wait{}):
	case s.undecided(err):
		return
	case s.outcome.Wait == (rollout.Wait{}):
		wait = s.waitForMachines()
	default:
		wait = s.withFailures(s.withIdle(s.outcome.Wait))
	}
	failure := rollout.Wait{}
	if err != nil {
		failure = rollout.Wait{Reason: clusterv1.InternalErrorReason, Message: message.Stable(err)}
	}
	set(s, rkev1.ReconciledCondition, failure)
	set(s, rkev1.StableCondition, wait)
	set(s, rkev1.UpdatedCondition, s.updated(wait))
	setOnce(s, rkev1.ProvisionedCondition, s.outcome != nil && s.election.Init != "" &&
		s.outcome.Wait.Reason != rollout.ReasonWaitingForMachines, wait)
	setOnce(s, rkev1.BootstrappedCondition, slices.ContainsFunc(s.machines,
		func(m *machine) bool { return m.state.Init && m.state.Working() }), wait)
	s.setKubeconfigReady(wait)
	if wait == (rollout.Wait{}) {
		var known bool
		if wait, known = s.waitForKubeconfig(); !known {
			return
		}
	}
	if wait == (rollout.Wait{}) {
		wait = s.waitForNodes()
	}
	set(s, rkev1.ReadyCondition, wait)
}

// explainDeletion says what a deletion waits for that has ended with an error. A conflict leaves what is known.
func (s *scope) explainDeletion(err error) {
	switch {
	case s.deleting != "":
	case err != nil:
		s.deleting = "Deleting failed, retrying: " + message.Stable(err)
	default:
		s.deleting = conditions.GetMessage(s.controlPlane, clusterv1.DeletingCondition)
	}
}

// setKubeconfigReady says what ensureKubeconfig has found. A reconcile that ended before leaves what is known; where nothing is, it is what
// the reconcile waits for.
func (s *scope) setKubeconfigReady(wait rollout.Wait) {
	switch {
	case s.kubeconfigRead && s.kubeconfig == (rollout.Wait{}) && s.kubeconfigNote != "":
		conditions.Set(s.controlPlane, metav1.Condition{Type: KubeconfigReadyCondition, Status: metav1.ConditionTrue,
			Reason: KubeconfigReadyCondition, Message: s.kubeconfigNote})
	case s.kubeconfigRead:
		set(s, KubeconfigReadyCondition, s.kubeconfig)
	case wait != (rollout.Wait{}) && !conditions.Has(s.controlPlane, KubeconfigReadyCondition):
		set(s, KubeconfigReadyCondition, wait)
	}
}

// waitForKubeconfig is why there is no kubeconfig, by the condition, and whether that is known.
func (s *scope) waitForKubeconfig() (wait rollout.Wait, known bool) {
	c := conditions.Get(s.controlPlane, KubeconfigReadyCondition)
	if c == nil || c.Status == metav1.ConditionTrue {
		return rollout.Wait{}, c != nil
	}
	return rollout.Wait{Reason: c.Reason, Message: c.Message}, true
}

// waitForMachines waits for Machines that MachineDeployments ask for and that do not exist yet. While they are made one after the other, a
// cluster is not ready, and stable, whenever those that exist are.
func (s *scope) waitForMachines() rollout.Wait {
	if len(s.missing) == 0 {
		return rollout.Wait{}
	}
	return s.withFailures(rollout.Wait{Reason: rollout.ReasonWaitingForMachines,
		Message: "Waiting for Machines to be created: " + message.JoinNames(s.missing, maxNames)})
}

// updated is zero once every machine has what the specification asks for, which it may have before it is done.
func (s *scope) updated(wait rollout.Wait) rollout.Wait {
	outdated := func(m *machine) bool {
		return !m.state.Deleting && (m.state.Change != rollout.ChangeNone || m.state.Progress != rollout.ProgressApplied)
	}
	if s.outcome == nil || len(s.machines) == 0 || len(s.missing) > 0 || slices.ContainsFunc(s.machines, outdated) {
		return wait
	}
	return rollout.Wait{}
}

// waitForNodes waits for the Nodes of all machines: without one, a machine runs no Pods.
func (s *scope) waitForNodes() rollout.Wait {
	without := namesOf(s.machines, func(m *machine) bool { return !m.state.Deleting && !m.machine.Status.NodeRef.IsDefined() })
	if len(without) == 0 {
		return rollout.Wait{}
	}
	return rollout.Wait{Reason: reasonWaitingForNodes, Message: "Waiting for the Node of " + message.JoinNames(without, maxNames) +
		" to appear in the cluster"}
}

// setConfigurationAccepted reports the problems of the specification.
func setConfigurationAccepted(s *scope) {
	if s.outcome == nil {
		return
	}
	c := metav1.Condition{Type: ConfigurationAcceptedCondition, Status: metav1.ConditionTrue, Reason: "Accepted"}
	var messages []string
	for _, p := range s.problems {
		messages = append(messages, p.String())
		switch {
		case p.Fatal:
			c.Status, c.Reason = metav1.ConditionFalse, rollout.ReasonPlanInvalid
		case p.Kept && c.Reason == "Accepted":
			c.Reason = "AcceptedWithWarnings"
		case !p.Kept && c.Reason != rollout.ReasonPlanInvalid:
			c.Status, c.Reason = metav1.ConditionFalse, "ArgumentsLeftOut"
		}
	}
	if warnings := fieldsupport.Warnings(&s.controlPlane.Spec); len(warnings) > 0 {
		messages = append(messages, warnings...)
		if c.Reason == "Accepted" {
			c.Reason = "AcceptedWithWarnings"
		}
	}
	c.Message = strings.Join(messages, "; ")
	conditions.Set(s.controlPlane, c)
}

// set sets a condition that is true, with its type as the reason, when nothing is waited for.
func set(s *scope, conditionType string, wait rollout.Wait) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: conditionType}
	if wait != (rollout.Wait{}) {
		c.Status, c.Reason, c.Message = reasons.Get(wait.Reason).Status, wait.Reason, wait.Message
	}
	conditions.Set(s.controlPlane, c)
}

// setOnce sets a condition that stays true once it was.
func setOnce(s *scope, conditionType string, met bool, wait rollout.Wait) {
	switch {
	case met || conditions.IsTrue(s.controlPlane, conditionType):
		wait = rollout.Wait{}
	case wait == (rollout.Wait{}):
		wait = rollout.Wait{Reason: rollout.ReasonWaitingForMachines, Message: "Waiting for machines to be registered"}
	}
	set(s, conditionType, wait)
}
