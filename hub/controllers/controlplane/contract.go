package controlplane

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/rollout"
)

// controlPlaneMachines are those that the contract counts.
func (s *scope) controlPlaneMachines() []*machine {
	return slices.DeleteFunc(slices.Clone(s.machines), func(m *machine) bool { return !m.facts.ControlPlane })
}

// setReplicas counts the control plane's Machines as the contract of Cluster API asks for.
func setReplicas(s *scope) {
	var replicas, ready, available, upToDate int32
	versions := map[string]int32{}
	for _, m := range s.controlPlaneMachines() {
		replicas++
		if conditions.IsTrue(m.machine, clusterv1.ReadyCondition) {
			ready++
		}
		if conditions.IsTrue(m.machine, clusterv1.AvailableCondition) {
			available++
		}
		if !m.state.Deleting && m.secret != nil && m.state.Change == rollout.ChangeNone && m.state.Progress == rollout.ProgressApplied {
			upToDate++
		}
		if m.state.Version != "" {
			versions[m.state.Version]++
		}
	}
	status := &s.controlPlane.Status
	status.Selector = clusterv1.ClusterNameLabel + "=" + s.clusterName() + "," + clusterv1.MachineControlPlaneLabel
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.UpToDateReplicas = &replicas, &ready, &available, &upToDate
	status.Versions, status.Version = nil, ""
	for _, v := range slices.SortedFunc(maps.Keys(versions), compareVersions) {
		status.Versions = append(status.Versions, clusterv1.StatusVersion{Version: v, Replicas: versions[v]})
	}
	if len(status.Versions) > 0 {
		status.Version = status.Versions[0].Version
	}
}

// compareVersions orders versions, builds of one version by their text.
func compareVersions(a, b string) int {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	if errA != nil || errB != nil {
		return strings.Compare(a, b)
	}
	order, _ := va.Compare(vb.String())
	return cmp.Or(order, strings.Compare(a, b))
}

// setContract sets the conditions that the contract of Cluster API names.
func setContract(s *scope) {
	// A pass that could not load the machines knows nothing about them and leaves what was known.
	if !s.loaded {
		return
	}
	var serving, updating, joining, leaving, notReady, notUpToDate []string
	for _, m := range s.controlPlaneMachines() {
		name := m.machine.Name
		if m.servesAPI() {
			serving = append(serving, name)
		}
		switch {
		case m.state.Deleting:
			leaving = append(leaving, name)
			continue
		case m.state.JoinURL == "" && !m.state.Working():
			joining = append(joining, name)
		case m.state.Change != rollout.ChangeNone || m.state.Progress != rollout.ProgressApplied:
			updating = append(updating, name)
		}
		if !conditions.IsTrue(m.machine, clusterv1.ReadyCondition) {
			notReady = append(notReady, name)
		}
		if m.state.Change != rollout.ChangeNone || m.state.Progress != rollout.ProgressApplied {
			notUpToDate = append(notUpToDate, name)
		}
	}
	available := metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue, Reason: clusterv1.AvailableReason}
	switch {
	case !isInitialized(s.controlPlane):
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, clusterv1.NotAvailableReason, "The control plane is not initialized yet"
	case len(serving) == 0:
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, clusterv1.NotAvailableReason, "No control plane node is known to serve the Kubernetes API"
	}
	conditions.Set(s.controlPlane, available)
	busy(s, clusterv1.RollingOutCondition, clusterv1.RollingOutReason, clusterv1.NotRollingOutReason, "Changing %s: %s", updating)
	busy(s, clusterv1.ScalingUpCondition, clusterv1.ScalingUpReason, clusterv1.NotScalingUpReason, "Adding %s: %s", joining)
	busy(s, clusterv1.ScalingDownCondition, clusterv1.ScalingDownReason, clusterv1.NotScalingDownReason, "Removing %s: %s", leaving)
	all(s, clusterv1.MachinesReadyCondition, clusterv1.ReadyReason, clusterv1.NotReadyReason, "Not ready: %s", notReady)
	all(s, clusterv1.MachinesUpToDateCondition, clusterv1.UpToDateReason, clusterv1.NotUpToDateReason, "Not up to date: %s", notUpToDate)
	conditions.Set(s.controlPlane, metav1.Condition{Type: clusterv1.RemediatingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotRemediatingReason})
}

// busy sets a condition that is true while machines are worked on.
func busy(s *scope, conditionType, reason, notReason, format string, names []string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: notReason}
	if len(names) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, fmt.Sprintf(format, count(len(names), "control plane node"), strings.Join(names, ", "))
	}
	conditions.Set(s.controlPlane, c)
}

// all sets a condition that is true when it holds for all machines.
func all(s *scope, conditionType, reason, notReason, format string, not []string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}
	switch {
	case len(s.controlPlaneMachines()) == 0:
		c.Reason = clusterv1.NoReplicasReason
	case len(not) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, notReason, fmt.Sprintf(format, strings.Join(not, ", "))
	}
	conditions.Set(s.controlPlane, c)
}

// setDeleting tells whether the control plane goes away.
func setDeleting(s *scope) {
	c := metav1.Condition{Type: clusterv1.DeletingCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotDeletingReason}
	if !s.controlPlane.DeletionTimestamp.IsZero() {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, clusterv1.DeletingReason, s.deleting
		s.controlPlane.Status.ExternalManagedControlPlane = ptr.To(false)
	}
	conditions.Set(s.controlPlane, c)
}
