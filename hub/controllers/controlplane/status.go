package controlplane

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/fieldsupport"
	"github.com/drover-dev/drover/hub/rollout"
)

// Conditions of an RKEControlPlane beyond those of rkev1 and of Cluster API.
const (
	// ConfigurationAcceptedCondition is false while something in the specification was left out of the plans or keeps them from being made.
	ConfigurationAcceptedCondition = "ConfigurationAccepted"
	// KubeconfigReadyCondition is true once the Secret with the cluster's kubeconfig is there.
	KubeconfigReadyCondition = "KubeconfigReady"
)

// ownedConditions are written by nobody else.
var ownedConditions = []string{
	clusterv1.PausedCondition, rkev1.ReadyCondition, rkev1.ProvisionedCondition, rkev1.BootstrappedCondition, rkev1.StableCondition,
	rkev1.ReconciledCondition, rkev1.UpdatedCondition, ConfigurationAcceptedCondition, KubeconfigReadyCondition,
	clusterv1.AvailableCondition, clusterv1.RollingOutCondition, clusterv1.ScalingUpCondition, clusterv1.ScalingDownCondition,
	clusterv1.MachinesReadyCondition, clusterv1.MachinesUpToDateCondition, clusterv1.RemediatingCondition, clusterv1.DeletingCondition,
}

// setStatus makes the status of what a pass has found. err is what it failed with.
func setStatus(s *scope, err error) {
	s.controlPlane.Status.ObservedGeneration = s.controlPlane.Generation
	setReplicas(s)
	setInitialized(s)
	setPhases(s, err)
	setConfiguration(s)
	setContract(s)
	setDeleting(s)
	done := isTrue(s.controlPlane, rkev1.ReadyCondition)
	s.controlPlane.Status.Ready = done
	if done {
		s.controlPlane.Status.AppliedSpec = s.controlPlane.Spec.DeepCopy()
		fieldsupport.Clear(s.controlPlane.Status.AppliedSpec)
	}
}

// setInitialized tells Cluster API once that the cluster's API is there. It never takes that back.
func setInitialized(s *scope) {
	for _, m := range s.machines {
		if m.facts.ControlPlane && m.servesAPI() {
			s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		}
	}
	s.controlPlane.Status.Initialized = isInitialized(s.controlPlane)
	s.controlPlane.Status.ExternalManagedControlPlane = ptr.To(false)
}

// setPhases sets what tells how far the cluster is as a whole.
func setPhases(s *scope, err error) {
	wait := s.wait
	switch {
	case !s.controlPlane.DeletionTimestamp.IsZero():
		wait = rollout.Wait{Reason: rollout.ReasonDeleting, Message: s.deleting}
	case err != nil:
		// A failed pass says nothing about the cluster, but must not look as if all were well.
		wait = rollout.Wait{Reason: clusterv1.InternalErrorReason, Message: "The last pass failed and is repeated: " + err.Error()}
	case wait != (rollout.Wait{}):
	case s.outcome == nil:
		// The pass was cut short by a conflict and knows nothing.
		return
	default:
		wait = s.outcome.Wait
	}
	set(s, rkev1.ReconciledCondition, errorWait(err), "Reconciled")
	set(s, rkev1.StableCondition, wait, "Stable")
	set(s, rkev1.UpdatedCondition, s.updated(wait), "Updated")
	latch(s, rkev1.ProvisionedCondition, s.outcome != nil && s.election.Init != "" && s.outcome.Wait.Reason != rollout.ReasonWaitingForMachines, wait)
	latch(s, rkev1.BootstrappedCondition, s.initWorks(), wait)
	kubeconfig := wait
	if s.outcome != nil && err == nil {
		kubeconfig = s.kubeconfig
		set(s, KubeconfigReadyCondition, kubeconfig, "KubeconfigReady")
	} else if !conditions.Has(s.controlPlane, KubeconfigReadyCondition) {
		set(s, KubeconfigReadyCondition, kubeconfig, "KubeconfigReady")
	}
	if wait == (rollout.Wait{}) {
		wait = s.kubeconfig
	}
	if wait == (rollout.Wait{}) {
		wait = s.lacksNodes()
	}
	set(s, rkev1.ReadyCondition, wait, "Ready")
}

func errorWait(err error) rollout.Wait {
	if err == nil {
		return rollout.Wait{}
	}
	return rollout.Wait{Reason: clusterv1.InternalErrorReason, Message: err.Error()}
}

// updated says which machines do not have yet what the specification asks for.
func (s *scope) updated(wait rollout.Wait) rollout.Wait {
	if wait == (rollout.Wait{}) || s.outcome == nil {
		return wait
	}
	var behind []string
	for _, m := range s.machines {
		if !m.state.Deleting && (m.state.Change != rollout.ChangeNone || m.state.Progress != rollout.ProgressApplied) {
			behind = append(behind, m.machine.Name)
		}
	}
	if len(behind) == 0 && len(s.machines) > 0 {
		return rollout.Wait{}
	}
	return wait
}

// lacksNodes says which machines have no Node yet: a plan that was applied is no machine that pods can run on.
func (s *scope) lacksNodes() rollout.Wait {
	var without []string
	for _, m := range s.machines {
		if !m.state.Deleting && !m.machine.Status.NodeRef.IsDefined() {
			without = append(without, m.machine.Name)
		}
	}
	if len(without) == 0 {
		return rollout.Wait{}
	}
	return rollout.Wait{Reason: reasonWaitingForNodes, Message: "Waiting for the Node of " + few(without) + " to be seen in the cluster"}
}

func (s *scope) initWorks() bool {
	for _, m := range s.machines {
		if m.state.Init && m.state.Working() {
			return true
		}
	}
	return false
}

// setConfiguration tells what the specification holds that could not be carried out.
func setConfiguration(s *scope) {
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

// set sets a condition that is true when nothing is waited for.
func set(s *scope, conditionType string, wait rollout.Wait, reason string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}
	if wait != (rollout.Wait{}) {
		c.Status, c.Reason, c.Message = waitStatus(wait.Reason), wait.Reason, wait.Message
	}
	conditions.Set(s.controlPlane, c)
}

// latch sets a condition that stays true once it was.
func latch(s *scope, conditionType string, met bool, wait rollout.Wait) {
	if met || isTrue(s.controlPlane, conditionType) {
		set(s, conditionType, rollout.Wait{}, conditionType)
		return
	}
	if wait == (rollout.Wait{}) {
		wait = rollout.Wait{Reason: rollout.ReasonWaitingForMachines, Message: "Waiting for machines to be registered"}
	}
	set(s, conditionType, wait, conditionType)
}

func isTrue(c *rkev1.RKEControlPlane, conditionType string) bool {
	return conditions.IsTrue(c, conditionType)
}

// few names at most five of many: a condition is read by people, and written for each change of its message.
func few(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
