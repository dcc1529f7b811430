package drivermachine

import (
	"context"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
)

// ForceRemoveAnnotation, on a machine that is being deleted, gives up on having its driver remove it: what is left of it at its cloud is
// for its owner to delete.
const ForceRemoveAnnotation = "provisioning.cattle.io/force-machine-remove"

// reconcileDelete has the driver remove the machine; removal says what that waits for.
func (m *machines) reconcileDelete(ctx context.Context, s *scope, unusable *cause.Cause) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.object, Finalizer) && !objects.HeldByRancher(s.object) {
		return ctrl.Result{}, nil
	}
	forced := s.object.GetAnnotations()[ForceRemoveAnnotation] == "true"
	if s.running != nil {
		if !s.running.removal || forced { // a removal may hang, as in the Pod of a Node that is lost
			s.running.cancel()
		}
		s.removal = cause.New("Deleting", "Waiting for the node driver to end or to remove the machine")
		if s.running.removal && s.running.queued.Load() {
			s.removal = cause.New(queuedReason, "Waiting for the node drivers of other machines to end, of which a limited number runs at a "+
				"time, before the machine is removed")
		}
		return ctrl.Result{}, nil
	}
	if forced {
		if err := m.drivers.Forget(ctx, m.id(s)); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, m.release(ctx, s)
	}
	if s.cluster != nil && isNeeded(s.machine) { // of a Cluster that is gone, Cluster API deletes no Machine
		return ctrl.Result{RequeueAfter: retryInterval}, nil // its condition Deleting says what it waits for; a change of it is watched
	}
	if unusable != nil {
		s.removal = cause.New(unusable.Reason, "%s; or delete the machine at its cloud by hand and set the annotation %s=true",
			unusable.Message, ForceRemoveAnnotation)
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	left, err := m.hasLeft(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !left && hasJoined(s) && s.stored.progress.Phase != phaseRemoved {
		s.removal = cause.New(reasonStateLost, "Secret %s does not have the state of the machine, so that the node driver cannot remove it; "+
			"restore the Secret, or delete the machine at its cloud by hand and set the annotation %s=true",
			rkev1.MachineStateSecretName(s.object.GetName()), ForceRemoveAnnotation)
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	if !left {
		return ctrl.Result{}, m.release(ctx, s)
	}
	if wait := m.removalPause(s); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	work, fault, err := m.prepare(ctx, s, true)
	if err != nil || fault != nil {
		s.removal = fault
		return ctrl.Result{RequeueAfter: retryInterval}, err
	}
	s.removal = cause.New("Deleting", "The node driver is removing the machine")
	m.startRemove(s.object.DeepCopy(), work, s.noCredential)
	return ctrl.Result{}, nil
}

// beforeInfrastructure are the reasons of the condition Deleting of a Machine until Cluster API deletes its infrastructure.
var beforeInfrastructure = []string{
	clusterv1.MachineNotDeletingReason, clusterv1.MachineDeletingWaitingForPreDrainHookReason, clusterv1.MachineDeletingDrainingNodeReason,
	clusterv1.MachineDeletingWaitingForVolumeDetachReason, clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
}

// isNeeded reports whether a Machine that is being deleted has not come to its infrastructure yet: its hooks have not ended, of which one
// removes its member of etcd. The garbage collector does not wait for that when something that owns the Machine, or itself, is deleted in
// the foreground. Cluster API leaves pre-drain hooks out where there is no Node to drain, as of a cluster that is deleted as a whole.
func isNeeded(machine *clusterv1.Machine) bool {
	if machine == nil || machine.DeletionTimestamp.IsZero() {
		return false
	}
	reason := conditions.GetReason(machine, clusterv1.MachineDeletingCondition)
	return slices.Contains(beforeInfrastructure, reason) ||
		annotations.HasWithPrefix(clusterv1.PreTerminateDeleteHookAnnotationPrefix, machine.Annotations) ||
		reason != clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason &&
			annotations.HasWithPrefix(clusterv1.PreDrainDeleteHookAnnotationPrefix, machine.Annotations)
}

// removalPause is how long the next removal has to wait after one that has failed; removal says why.
func (m *machines) removalPause(s *scope) time.Duration {
	p := s.stored.progress
	if wait := p.pause(m.now()); p.RemovalAttempt > 0 && wait > 0 {
		s.removal = cause.New("DeleteError", "Removing the machine failed (%d times, the next attempt at %s): %s; to give up on it, set the "+
			"annotation %s=true and delete the machine at its cloud by hand", p.RemovalAttempt, p.NotBefore.UTC().Format(time.RFC3339), p.Error,
			ForceRemoveAnnotation)
		return wait
	}
	if failed := m.operations.failure(s.object.GetUID(), true); failed != nil && failed.notBefore.After(m.now()) {
		s.removal = cause.New("DeleteError", "The removal of the machine could not be recorded (the next attempt at %s): %s",
			failed.notBefore.UTC().Format(time.RFC3339), message.Bound(failed.err.Error(), message.MaxError))
		return failed.notBefore.Sub(m.now())
	}
	return 0
}

// hasLeft reports whether the driver has anything to remove, or an operation has left objects. What a Job has saved the hub may not have
// read yet.
func (m *machines) hasLeft(ctx context.Context, s *scope) (bool, error) {
	if s.stored.progress.Phase != phaseRemoved && s.stored.state.Config() != nil {
		return true, nil
	}
	outlived, err := m.drivers.Outlived(ctx, m.id(s))
	return outlived != nodedriver.OutlivedNothing, err
}

// release lets a machine be deleted, and its state with it.
func (m *machines) release(ctx context.Context, s *scope) error {
	if err := m.releaseState(ctx, s.stored); err != nil {
		return err
	}
	m.operations.forget(s.object.GetUID())
	controllerutil.RemoveFinalizer(s.object, Finalizer)
	objects.DropRancherFinalizers(s.object)
	s.gone = true
	return nil
}
