package timeline

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// TestRefusedChange: a cluster whose machines are ready, and whose last change was refused, is not shown as ready.
func TestRefusedChange(t *testing.T) {
	for name, tc := range map[string]struct {
		accepted metav1.ConditionStatus
		imported bool
		want     string
		outcome  timelines.Outcome
	}{
		"accepted":                    {metav1.ConditionTrue, false, phaseReady, timelines.OutcomeReady},
		"refused":                     {metav1.ConditionFalse, false, "FileSourceNotFound", timelines.OutcomeFailed},
		"without effect on an import": {metav1.ConditionFalse, true, phaseReady, timelines.OutcomeReady},
	} {
		cluster := &provisioningv1.Cluster{}
		if !tc.imported {
			cluster.Spec.RKEConfig = &provisioningv1.RKEConfig{}
		}
		cluster.Status.Conditions = []metav1.Condition{
			condition(provisioningv1.ReadyCondition, metav1.ConditionTrue, "Ready", noon),
			condition(provisioningv1.RKEClusterCondition, tc.accepted, "FileSourceNotFound", noon),
		}
		if got := (&scope{provisioning: cluster}).clusterPhase(); got.Name != tc.want || got.Outcome != tc.outcome {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestCauses: a phase that is known from more than one condition has the message of the one that knows the cause.
func TestCauses(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	is := func(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
	}
	hook := is("Deleting", yes, "WaitingForPreTerminateHook", "hooks: etcd")
	node := is("Reconciled", unknown, "WaitingForNode", "Waiting for the Node to be ready")
	for name, tc := range map[string]struct {
		deleted    bool
		conditions []metav1.Condition
		want       string
	}{
		"a member that cannot be removed": {true, []metav1.Condition{hook, is("EtcdMemberRemoved", no, "LastMember", "the last one")},
			"LastMember the last one"},
		"a member that was removed": {true, []metav1.Condition{hook, is("EtcdMemberRemoved", yes, "Removed", "gone")},
			"WaitingForPreTerminateHook hooks: etcd"},
		"another machine with a hook": {true, []metav1.Condition{hook}, "WaitingForPreTerminateHook hooks: etcd"},
		"a member that is drained": {true, []metav1.Condition{is("Deleting", yes, "DrainingNode", "2 Pods"),
			is("EtcdMemberRemoved", no, "WaitingForDrain", "drain")}, "DrainingNode 2 Pods"},
		"a Node that does not report": {false, []metav1.Condition{node, is("NodeReady", unknown, "NodeReadyUnknown",
			"* Node.Ready: Kubelet stopped posting node status.")},
			"WaitingForNode Waiting for the Node to be ready: Node.Ready: Kubelet stopped posting node status."},
		"a Node that is ready by now": {false, []metav1.Condition{node, is("NodeReady", yes, "NodeReady", "")},
			"WaitingForNode Waiting for the Node to be ready"},
		"another wait": {false, []metav1.Condition{is("Reconciled", unknown, "WaitingForProbes", "Waiting for probes: kubelet"),
			is("NodeReady", no, "NodeNotReady", "* Node.Ready: no network")}, "WaitingForProbes Waiting for probes: kubelet"},
	} {
		m := newMachine("m", append(tc.conditions, is("BootstrapConfigReady", yes, "Ready", ""), is("InfrastructureReady", yes, "Ready", ""))...)
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io"}
		if tc.deleted {
			m.DeletionTimestamp = &metav1.Time{Time: noon}
		}
		if p := machinePhase(m); p.Name+" "+p.Message != tc.want {
			t.Errorf("%s: got %s %s, want %s", name, p.Name, p.Message, tc.want)
		}
	}
}

// TestPausedControlPlane: a cluster whose RKEControlPlane alone is paused waits for that, and not for what it waited for before.
func TestPausedControlPlane(t *testing.T) {
	cluster := &provisioningv1.Cluster{Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	plane := &rkev1.RKEControlPlane{}
	cluster.Status.Conditions = []metav1.Condition{condition(provisioningv1.ReadyCondition, metav1.ConditionUnknown, "WaitingForProbes", noon)}
	for status, want := range map[metav1.ConditionStatus]string{
		metav1.ConditionTrue: "Paused about Paused", metav1.ConditionFalse: "WaitingForProbes about WaitingForProbes",
	} {
		plane.Status.Conditions = []metav1.Condition{condition(clusterv1.PausedCondition, status, "Paused", noon)}
		if p := (&scope{provisioning: cluster, controlPlane: plane}).clusterPhase(); p.Name+" "+p.Message != want {
			t.Errorf("paused is %s: got %s %s", status, p.Name, p.Message)
		}
	}
}
