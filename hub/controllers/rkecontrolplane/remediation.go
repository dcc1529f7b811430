package rkecontrolplane

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/hub/util/patch"
)

// updateRemediation does what a MachineHealthCheck leaves to the controller of a Machine, for one that has none, such as a custom machine.
// Nobody creates another in its place, so it is not deleted. Its condition OwnerRemediated says so instead of a wait that never ends, and
// goes when the machine is healthy again.
func (r *Reconciler) updateRemediation(ctx context.Context, machine *clusterv1.Machine) error {
	if metav1.GetControllerOfNoCopy(machine) != nil || !machine.DeletionTimestamp.IsZero() ||
		!conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
		return nil
	}
	if conditions.IsFalse(machine, clusterv1.MachineHealthCheckSucceededCondition) {
		return patch.Conditions(ctx, r.Client, machine, fieldOwner, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason:  clusterv1.MachineSetMachineCannotBeRemediatedReason,
			Message: "A Machine outside of a MachineSet is not replaced: repair the machine, or delete the Machine and add another one",
		})
	}
	return patch.RemoveCondition(ctx, r.Client, machine, fieldOwner, clusterv1.MachineOwnerRemediatedCondition)
}

// cancelRemediation takes back that a Machine waits for its replacement, if it has the annotation cluster.x-k8s.io/skip-remediation. The
// annotation keeps health checks from looking at the Machine, and its MachineSet goes by the conditions alone: one that was found unhealthy
// before, and that maxInFlight has wait for others, would be deleted when its turn comes, whether it has recovered or not.
func (r *Reconciler) cancelRemediation(ctx context.Context, machine *clusterv1.Machine) error {
	if !annotations.HasSkipRemediation(machine) || !inMachineSet(machine) || !machine.DeletionTimestamp.IsZero() ||
		!conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
		return nil
	}
	return patch.RemoveCondition(ctx, r.Client, machine, fieldOwner, clusterv1.MachineOwnerRemediatedCondition)
}
