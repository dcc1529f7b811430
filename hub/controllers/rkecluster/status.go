package rkecluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var ownedConditions = []string{rkev1.ReadyCondition, clusterv1.DeletingCondition}

// setStatus sets the status.
func setStatus(s *scope) {
	if !s.infra.DeletionTimestamp.IsZero() {
		deleting := metav1.Condition{Type: clusterv1.DeletingCondition, Status: metav1.ConditionTrue, Reason: clusterv1.DeletionCompletedReason}
		if s.err != nil {
			deleting.Reason, deleting.Message = clusterv1.InternalErrorReason, fmt.Sprintf("Deleting the RKECluster: %v; retrying", s.err)
		} else if s.machines > 0 {
			deleting.Reason = "WaitingForMachines"
			deleting.Message = fmt.Sprintf("Waiting for %d Machines of the cluster to be deleted", s.machines)
		}
		conditions.Set(s.infra, deleting)
		conditions.Set(s.infra, metav1.Condition{
			Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: clusterv1.DeletingReason, Message: deleting.Message,
		})
		return
	}
	// There is nothing to create: machines register themselves, and the control plane provides the endpoint if the user sets none.
	s.infra.Status.Initialization.Provisioned = new(true)
	s.infra.Status.Ready = true
	ready := metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Provisioned"}
	switch {
	case s.refused != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.refused.Reason, s.refused.Message
	case s.cluster == nil:
		ready.Status, ready.Reason = metav1.ConditionFalse, "WaitingForCluster"
		ready.Message = "Waiting for a Cluster of cluster.x-k8s.io to refer to this RKECluster"
	}
	conditions.Set(s.infra, ready)
}
