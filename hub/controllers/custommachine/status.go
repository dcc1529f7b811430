package custommachine

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// scope is what one pass has read.
type scope struct {
	custom *rkev1.CustomMachine
	// machine is nil as long as Cluster API has not taken the CustomMachine over.
	machine *clusterv1.Machine
	// refused says why the Machine that the CustomMachine names as its owner does not count.
	refused *ownership.Refusal
}

var ownedConditions = []string{rkev1.ReadyCondition}

// setStatus makes the status of what a pass has found. A machine that was provisioned once stays so.
func setStatus(s *scope) {
	if s.custom.Spec.ProviderID != "" {
		s.custom.Status.Initialization.Provisioned = ptr.To(true)
		s.custom.Status.Ready = true
	}
	s.custom.Status.FailureDomain = s.custom.Spec.FailureDomain
	conditions.Set(s.custom, readyCondition(s))
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
		ready.Reason = "WaitingForNode"
		ready.Message = fmt.Sprintf("Waiting for the machine's Node, labelled %s=%s, to appear in the cluster", rkev1.MachineUIDLabel, s.machine.UID)
	}
	return ready
}
