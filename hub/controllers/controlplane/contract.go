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

// setReplicas counts the control plane's Machines as the contract of Cluster API asks for. A reconcile that could not read them, or did not
// because of a deletion, leaves what was known.
func setReplicas(s *scope) {
	s.controlPlane.Status.Selector = clusterv1.ClusterNameLabel + "=" + s.clusterName() + "," + clusterv1.MachineControlPlaneLabel
	if !s.loaded {
		return
	}
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
		if !m.state.Deleting && m.upToDate() {
			upToDate++
		}
		if m.state.Version != "" {
			versions[m.state.Version]++
		}
	}
	status := &s.controlPlane.Status
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

// tally are the names of control plane Machines by what happens to them.
type tally struct {
	serving, updating, joining, leaving, remediated, notReady, notUpToDate []string
	// pooled is how many come from MachineDeployments and stay.
	pooled int32
}

func (s *scope) tally() tally {
	var t tally
	for _, m := range s.controlPlaneMachines() {
		name := m.machine.Name
		if m.servesAPI() && !m.state.Node.Unready() {
			t.serving = append(t.serving, name)
		}
		if conditions.IsFalse(m.machine, clusterv1.MachineOwnerRemediatedCondition) {
			t.remediated = append(t.remediated, name)
		}
		if m.state.Deleting {
			t.leaving = append(t.leaving, name)
			continue
		}
		if inMachineSet(m.machine) {
			t.pooled++
		}
		switch {
		case m.state.JoinURL == "" && !m.state.Joinable():
			t.joining = append(t.joining, name)
		case !m.upToDate():
			t.updating = append(t.updating, name)
		}
		if !conditions.IsTrue(m.machine, clusterv1.ReadyCondition) {
			t.notReady = append(t.notReady, name)
		}
		if !m.upToDate() {
			t.notUpToDate = append(t.notUpToDate, name)
		}
	}
	return t
}

// upToDate tells whether the machine has applied what is asked for.
func (m *machine) upToDate() bool {
	return m.secret != nil && m.state.Change == rollout.ChangeNone && m.state.Progress == rollout.ProgressApplied
}

// setContract sets the conditions that the contract of Cluster API names.
func setContract(s *scope) {
	// A pass that could not load the machines knows nothing about them and leaves what was known.
	if !s.loaded {
		return
	}
	t := s.tally()
	available := metav1.Condition{Type: clusterv1.AvailableCondition, Status: metav1.ConditionTrue, Reason: clusterv1.AvailableReason}
	switch {
	case !isInitialized(s.controlPlane):
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, clusterv1.NotAvailableReason, "The control plane is not initialized yet"
	case !s.silentSince.IsZero():
		available.Status, available.Reason = metav1.ConditionUnknown, clusterv1.ConnectionDownReason
		available.Message = "The API of the cluster has not answered since " + s.silentSince.UTC().Format("2006-01-02 15:04:05 MST")
	case len(t.serving) == 0:
		available.Status, available.Reason, available.Message = metav1.ConditionFalse, clusterv1.NotAvailableReason, "No control plane node is known to serve the Kubernetes API"
	}
	conditions.Set(s.controlPlane, available)
	busy(s, clusterv1.RollingOutCondition, clusterv1.RollingOutReason, clusterv1.NotRollingOutReason, doing("Changing", t.updating))
	busy(s, clusterv1.ScalingUpCondition, clusterv1.ScalingUpReason, clusterv1.NotScalingUpReason, doing("Adding", t.joining), missing(s.pooled, t.pooled))
	busy(s, clusterv1.ScalingDownCondition, clusterv1.ScalingDownReason, clusterv1.NotScalingDownReason, doing("Removing", t.leaving), surplus(s.pooled, t.pooled))
	busy(s, clusterv1.RemediatingCondition, clusterv1.RemediatingReason, clusterv1.NotRemediatingReason, doing("A health check replaces", t.remediated))
	all(s, clusterv1.MachinesReadyCondition, clusterv1.ReadyReason, clusterv1.NotReadyReason, "Not ready: %s", t.notReady)
	all(s, clusterv1.MachinesUpToDateCondition, clusterv1.UpToDateReason, clusterv1.NotUpToDateReason, "Not up to date: %s", t.notUpToDate)
}

// doing says what is done to machines; empty for none.
func doing(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", what, count(len(names), "control plane node"), few(names))
}

// missing says that MachineDeployments have yet to make Machines, surplus that they have yet to delete some.
func missing(wanted, there int32) string {
	if there >= wanted {
		return ""
	}
	return fmt.Sprintf("%d of %d control plane Machines of MachineDeployments are there", there, wanted)
}

func surplus(wanted, there int32) string {
	if there <= wanted {
		return ""
	}
	return fmt.Sprintf("There are %d control plane Machines of MachineDeployments, and %d are wanted", there, wanted)
}

// busy sets a condition that is true while something goes on.
func busy(s *scope, conditionType, reason, notReason string, what ...string) {
	c := metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: notReason}
	if what = slices.DeleteFunc(what, func(w string) bool { return w == "" }); len(what) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, strings.Join(what, "; ")
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
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, notReason, fmt.Sprintf(format, few(not))
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
