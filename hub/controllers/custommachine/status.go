package custommachine

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var ownedConditions = []string{clusterv1.PausedCondition, rkev1.NodeFoundCondition, rkev1.NodeMissingCondition, rkev1.ReadyCondition}

// setStatus writes what the phases found. A provider ID and addresses that were found once stay: a cluster that cannot be reached has lost
// no Node. A machine that was provisioned once stays so.
func setStatus(s *scope) {
	setNodeFound(s)
	if s.custom.Spec.ProviderID != "" {
		s.custom.Status.Initialization.Provisioned = new(true)
		s.custom.Status.Ready = true
	}
	s.custom.Status.FailureDomain = s.custom.Spec.FailureDomain
	conditions.Set(s.custom, readyCondition(s))
}

func setNodeFound(s *scope) {
	found := metav1.Condition{Type: rkev1.NodeFoundCondition, Status: metav1.ConditionTrue, Reason: "NodeFound"}
	switch {
	case s.waiting != nil:
		found.Status, found.Reason, found.Message = metav1.ConditionFalse, s.waiting.Reason, s.waiting.Message
		if s.unknown {
			found.Status = metav1.ConditionUnknown
		}
	case s.node != nil:
		s.custom.Spec.ProviderID = s.node.Spec.ProviderID
		s.custom.Status.Addresses = addresses(s.node)
		found.Message = "Node " + s.node.Name
	default:
		return
	}
	conditions.Set(s.custom, found)
}

// addresses converts the addresses of a Node; Cluster API has the same types of addresses.
func addresses(node *corev1.Node) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for _, address := range node.Status.Addresses {
		out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(address.Type), Address: address.Address})
	}
	return out
}

func readyCondition(s *scope) metav1.Condition {
	ready := metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse}
	found := conditions.Get(s.custom, rkev1.NodeFoundCondition)
	switch {
	case s.refused != nil:
		ready.Reason, ready.Message = s.refused.Reason, s.refused.Message
	case s.custom.Spec.ProviderID != "":
		ready.Status, ready.Reason = metav1.ConditionTrue, "NodeFound"
	case s.machine == nil:
		ready.Reason, ready.Message = "WaitingForMachine", "Waiting for a Machine of cluster.x-k8s.io to refer to this CustomMachine"
	case found != nil && found.Message != "":
		ready.Reason, ready.Message = found.Reason, found.Message
	default:
		ready.Reason, ready.Message = reasonWaitingForNode, waitingForNode(s.machine)
	}
	return ready
}

const reasonWaitingForNode = "WaitingForNode"

func waitingForNode(machine *clusterv1.Machine) string {
	return fmt.Sprintf("Waiting for Node with label %s=%s to appear in the cluster", rkev1.MachineUIDLabel, machine.UID)
}
