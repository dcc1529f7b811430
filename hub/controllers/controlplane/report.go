package controlplane

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/rollout"
)

// reportMachines writes what was decided about each machine into the conditions of its RKEBootstrap and its Machine. UpToDate is Cluster
// API's name for it; that of Machines in MachineSets belongs to others.
func (r *Reconciler) reportMachines(ctx context.Context, s *scope) error {
	var errs []error
	for _, m := range s.machines {
		errs = append(errs, r.tellVersion(ctx, s, m.machine))
		reconciled := reconciledCondition(m.decision)
		errs = append(errs, r.report(ctx, m.bootstrap, reconciled))
		own := []metav1.Condition{reconciled}
		if !inMachineSet(m.machine) {
			upToDate := upToDateCondition(m)
			own = append(own, upToDate)
		}
		errs = append(errs, r.report(ctx, m.machine, own...))
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

// conditioned is an object with conditions.
type conditioned interface {
	client.Object
	conditions.Setter
}

// report sets conditions, and writes nothing if they are as they should be. What is being deleted may be gone by then.
func (r *Reconciler) report(ctx context.Context, object conditioned, own ...metav1.Condition) error {
	if !slices.ContainsFunc(own, func(c metav1.Condition) bool {
		return differs(conditions.Get(object, c.Type), c, object.GetGeneration())
	}) {
		return nil
	}
	helper, err := patch.NewHelper(object, r.Client)
	if err != nil {
		return fmt.Errorf("preparing the patch of %T %s: %w", object, object.GetName(), err)
	}
	types := make([]string, 0, len(own))
	for _, c := range own {
		conditions.Set(object, c)
		types = append(types, c.Type)
	}
	err = helper.Patch(ctx, object, patch.WithOwnedConditions{Conditions: types})
	if err != nil && !failure.IsGone(err) {
		return fmt.Errorf("writing conditions of %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// differs tells whether a condition has to be written.
func differs(have *metav1.Condition, want metav1.Condition, generation int64) bool {
	return have == nil || have.Status != want.Status || have.Reason != want.Reason || have.Message != want.Message || have.ObservedGeneration != generation
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
		reasonVersionInvalid, reasonTokensLost, reasonCALost, reasonNoAuthority, clusterv1.InternalErrorReason, rollout.ReasonDeleting:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

func inMachineSet(m *clusterv1.Machine) bool {
	owner := metav1.GetControllerOf(m)
	return owner != nil && owner.Kind == "MachineSet"
}
