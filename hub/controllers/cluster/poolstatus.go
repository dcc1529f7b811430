package cluster

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
)

// reasonMachinesMissing is for pools that are on their way.
const reasonMachinesMissing = "WaitingForMachines"

// setPools tells how far the machine pools are. A Cluster without any has no such condition.
func setPools(s *scope) {
	if len(s.cluster.Spec.RKEConfig.MachinePools) == 0 {
		conditions.Delete(s.cluster, provisioningv1.MachinePoolsReadyCondition)
		return
	}
	if len(s.pools) > 0 {
		conditions.Set(s.cluster, poolsCondition(s.pools))
		return
	}
	conditions.Set(s.cluster, metav1.Condition{Type: provisioningv1.MachinePoolsReadyCondition, Status: metav1.ConditionUnknown,
		Reason: "WaitingForControlPlane", Message: "Waiting for the objects of Cluster API to be written"})
}

// poolsCondition sums up the pools: a problem of one that somebody has to solve comes before what takes its time.
func poolsCondition(pools []*poolScope) metav1.Condition {
	var faults, waits []problem
	for _, p := range pools {
		if p.problem != nil {
			faults = append(faults, *p.problem)
		} else if message := progress(p); message != "" {
			waits = append(waits, problem{reasonMachinesMissing, message})
		}
	}
	condition := metav1.Condition{Type: provisioningv1.MachinePoolsReadyCondition, Status: metav1.ConditionTrue, Reason: "MachinePoolsReady"}
	switch {
	case len(faults) > 0:
		sum := sumUp(append(faults, waits...))
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, sum.reason, sum.message
	case len(waits) > 0:
		sum := sumUp(waits)
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, sum.reason, sum.message
	}
	return condition
}

// progress tells in which way the machines of a pool are not yet what the pool asks for, or "".
func progress(p *poolScope) string {
	if p.deployment == nil {
		return fmt.Sprintf("Pool %s: waiting for its MachineDeployment", p.spec.Name)
	}
	want, status := pool.Quantity(p.spec), p.deployment.Status
	there, available, current := ptr.Deref(status.Replicas, 0), ptr.Deref(status.AvailableReplicas, 0), ptr.Deref(status.UpToDateReplicas, 0)
	var parts []string
	if available < want {
		parts = append(parts, fmt.Sprintf("%d of %d machines are available", available, want))
	}
	if there > current {
		parts = append(parts, fmt.Sprintf("%d still to be replaced", there-current))
	} else if there > want {
		parts = append(parts, fmt.Sprintf("%d being removed", there-want))
	}
	if len(parts) == 0 {
		return ""
	}
	if p.spec.Paused {
		parts = append(parts, "the pool is paused")
	}
	return fmt.Sprintf("Pool %s: %s", p.spec.Name, strings.Join(parts, ", "))
}

// withPools makes a Cluster that its control plane calls ready wait for machines that the control plane does not know of yet.
func withPools(ready metav1.Condition, s *scope) metav1.Condition {
	pools := conditions.Get(s.cluster, provisioningv1.MachinePoolsReadyCondition)
	if ready.Status != metav1.ConditionTrue || pools == nil || pools.Status == metav1.ConditionTrue {
		return ready
	}
	ready.Status, ready.Reason, ready.Message = pools.Status, pools.Reason, pools.Message
	return ready
}
