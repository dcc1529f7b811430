package controlplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/rollout"
)

// reportMachines writes what was decided about each machine into the conditions of its RKEBootstrap and its Machine. UpToDate is Cluster
// API's name for it; that of Machines in MachineSets belongs to others.
func (r *Reconciler) reportMachines(ctx context.Context, s *scope) error {
	var errs []error
	for _, m := range s.machines {
		errs = append(errs, r.tellVersion(ctx, s, m.machine))
		reconciled := reconciledCondition(m.decision)
		errs = append(errs, patch.Conditions(ctx, r.Client, m.bootstrap, fieldOwner, reconciled))
		own := []metav1.Condition{reconciled}
		if !inMachineSet(m.machine) {
			own = append(own, upToDateCondition(m))
		}
		errs = append(errs, patch.Conditions(ctx, r.Client, m.machine, fieldOwner, own...))
	}
	return kerrors.NewAggregate(errs)
}

// tellVersion writes the version that is asked for into a Machine of a MachineSet. Cluster API compares it with that of the kubelet, and
// without it takes such a Machine for one that is never up to date. The MachineSet has none: there, a change would replace machines.
func (r *Reconciler) tellVersion(ctx context.Context, s *scope, machine *clusterv1.Machine) error {
	if !lacksVersion(machine, s.controlPlane.Spec.DesiredVersion()) {
		return nil
	}
	before := machine.DeepCopy()
	machine.Spec.Version = s.controlPlane.Spec.DesiredVersion()
	if err := r.Client.Patch(ctx, machine, client.MergeFrom(before), fieldOwner); err != nil && !failure.IsGone(err) {
		return fmt.Errorf("writing the version of Machine %s: %w", machine.Name, err)
	}
	return nil
}

func lacksVersion(m *clusterv1.Machine, wanted string) bool {
	return inMachineSet(m) && m.DeletionTimestamp.IsZero() && m.Spec.Version != wanted
}

func reconciledCondition(d rollout.Decision) metav1.Condition {
	c := metav1.Condition{Type: rkev1.ReconciledCondition, Status: waitStatus(d.Reason), Reason: d.Reason, Message: d.Message}
	if d.Done {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func upToDateCondition(m *machine) metav1.Condition {
	if m.upToDate() {
		return metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionTrue, Reason: clusterv1.UpToDateReason}
	}
	return metav1.Condition{Type: clusterv1.MachineUpToDateCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotUpToDateReason, Message: "* " + m.decision.Message}
}

// waitStatus is the status of a condition that is not met. Unknown means that things are on their way, False that somebody has to act;
// users' interfaces show the one as progress and the other as a fault.
func waitStatus(reason string) metav1.ConditionStatus {
	switch reason {
	case rollout.ReasonPlanFailed, rollout.ReasonDrainFailed, rollout.ReasonPlanInvalid, rollout.ReasonPlanCanceled, rollout.ReasonEtcdLost,
		ownership.ReasonOwnerMismatch, ownership.ReasonManagementClusterNotOwned, reasonVersionInvalid, reasonTokensLost, reasonCALost, reasonNoAuthority, reasonKubeconfigRefused, clusterv1.InternalErrorReason, rollout.ReasonDeleting:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

func inMachineSet(m *clusterv1.Machine) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.Kind == "MachineSet"
}
