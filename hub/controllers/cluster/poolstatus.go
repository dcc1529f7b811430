package cluster

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/util/cause"
)

// reasonMachinesMissing is for pools that are in progress.
const reasonMachinesMissing = "WaitingForMachines"

// setPools sets the condition MachinePoolsReady. A Cluster without pools does not have it. While the spec of a cluster that exists is not
// passed on, its pools stay as they are, and so does the condition.
func setPools(s *scope) {
	switch {
	case len(s.cluster.Spec.RKEConfig.MachinePools) == 0:
		conditions.Delete(s.cluster, provisioningv1.MachinePoolsReadyCondition)
	case len(s.pools) > 0:
		conditions.Set(s.cluster, poolsCondition(s.pools))
	case s.passedOn || s.controlPlane == nil:
		conditions.Set(s.cluster, metav1.Condition{Type: provisioningv1.MachinePoolsReadyCondition, Status: metav1.ConditionUnknown,
			Reason: reasons.WaitingForControlPlane, Message: "Waiting for the objects of Cluster API to be created"})
	}
}

// poolsCondition sums up the pools: problems that a user has to solve come before progress.
func poolsCondition(pools []*poolScope) metav1.Condition {
	var faults, waits []*cause.Cause
	for _, p := range pools {
		if p.problem != nil {
			faults = append(faults, p.problem)
		} else if message := progress(p); message != "" {
			waits = append(waits, cause.New(reasonMachinesMissing, "%s", message))
		}
	}
	condition := metav1.Condition{Type: provisioningv1.MachinePoolsReadyCondition, Status: metav1.ConditionTrue, Reason: "MachinePoolsReady"}
	switch {
	case len(faults) > 0:
		sum := sumUp(append(faults, waits...))
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, sum.Reason, sum.Message
	case len(waits) > 0:
		sum := sumUp(waits)
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, sum.Reason, sum.Message
	}
	return condition
}

// progress says how the machines of a pool differ from the spec; empty if they do not.
func progress(p *poolScope) string {
	if p.deployment == nil {
		return fmt.Sprintf("Pool %s: waiting for the MachineDeployment to be created", p.spec.Name)
	}
	if !p.deployment.DeletionTimestamp.IsZero() {
		return fmt.Sprintf("Pool %s: waiting for MachineDeployment %s to be deleted; the pool gets another one then", p.spec.Name,
			p.deployment.Name)
	}
	want, status := wantedMachines(p), p.deployment.Status
	there, available, upToDate := ptr.Deref(status.Replicas, 0), ptr.Deref(status.AvailableReplicas, 0), ptr.Deref(status.UpToDateReplicas, 0)
	var parts []string
	if available < want {
		parts = append(parts, fmt.Sprintf("%d of %d machines are available", available, want))
	}
	switch replaced := outdated(p); {
	case replaced > 0:
		parts = append(parts, fmt.Sprintf("%d still to be replaced", replaced))
	case there > upToDate: // those that change in place: Cluster API compares the version of Machines with that of their kubelets
		parts = append(parts, fmt.Sprintf("%d of %d machines are not up to date", there-upToDate, there))
	case there > want:
		parts = append(parts, fmt.Sprintf("%d being removed", there-want))
	case len(parts) == 0 && status.ObservedGeneration < p.deployment.Generation: // the numbers are those of the pool before a change
		parts = append(parts, "waiting for the MachineDeployment to be reconciled")
	}
	if len(parts) == 0 {
		return ""
	}
	if p.spec.Paused {
		parts = append(parts, "the pool is paused")
	}
	return fmt.Sprintf("Pool %s: %s", p.spec.Name, strings.Join(parts, ", "))
}

// outdated is how many machines of a pool are of earlier templates, or of an earlier revision of the same, as after spec.rollout.after of
// the MachineDeployment. Cluster API gives the present templates a revision when some of its controllers have seen them.
func outdated(p *poolScope) (machines int32) {
	current, revision := p.deployment.Spec.Template.Spec, p.deployment.Annotations[clusterv1.RevisionAnnotation]
	for _, set := range p.sets {
		spec := set.Spec.Template.Spec
		if spec.InfrastructureRef != current.InfrastructureRef || spec.Bootstrap.ConfigRef != current.Bootstrap.ConfigRef ||
			revision != "" && set.Annotations[clusterv1.RevisionAnnotation] != revision {
			machines += ptr.Deref(set.Status.Replicas, 0)
		}
	}
	return machines
}

// withPools makes a Cluster whose control plane is ready wait for machines that do not exist yet.
func withPools(ready metav1.Condition, s *scope) metav1.Condition {
	pools := conditions.Get(s.cluster, provisioningv1.MachinePoolsReadyCondition)
	if ready.Status != metav1.ConditionTrue || pools == nil || pools.Status == metav1.ConditionTrue {
		return ready
	}
	ready.Status, ready.Reason, ready.Message = pools.Status, pools.Reason, pools.Message
	return ready
}
