package nodelookup

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var ownedConditions = []string{rkev1.NodeFoundCondition}

// setStatus writes what a pass has found. What was found once stays: a cluster that cannot be reached has lost no Node.
func setStatus(s *scope) {
	found := metav1.Condition{Type: rkev1.NodeFoundCondition, Status: metav1.ConditionTrue, Reason: "NodeFound"}
	switch {
	case s.waiting != nil:
		found.Status, found.Reason, found.Message = metav1.ConditionFalse, s.waiting.reason, s.waiting.message
		if s.waiting.unknown {
			found.Status = metav1.ConditionUnknown
		}
	case s.node != nil:
		s.custom.Spec.ProviderID = s.node.Spec.ProviderID
		s.custom.Status.Addresses = addresses(s.node)
		found.Message = "Node " + s.node.Name
	}
	conditions.Set(s.custom, found)
}

// addresses are those of the Node, whose types Cluster API has taken over by name.
func addresses(node *corev1.Node) []clusterv1.MachineAddress {
	var out []clusterv1.MachineAddress
	for _, address := range node.Status.Addresses {
		out = append(out, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(address.Type), Address: address.Address})
	}
	return out
}
