package rkecontrolplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/operations"
)

// unrestored is the etcdSnapshotRestore for which the Cluster was given the configuration of a snapshot whose data is not restored: the
// name of the ETCDSnapshot, a slash, and the generation; empty for none. The configuration could be an older version of Kubernetes than the
// one that has written the present data, so that it restarts nothing before the data is restored. That is in an annotation, since
// operations may be deleted, and lose their status when they are moved to another hub.
func (s *scope) unrestored() string {
	if s.controlPlane.Spec.ETCDSnapshotRestore == nil {
		return "" // the request was removed; a preview does not change the annotation
	}
	return s.controlPlane.Annotations[rkev1.UnrestoredConfigurationAnnotation]
}

// recordUnrestored writes the annotation that unrestored reads, where it changes. Nothing is delivered before it is stored.
func (r *Reconciler) recordUnrestored(ctx context.Context, s *scope, all []operationv1.Operation) error {
	before, after := s.controlPlane.Annotations[rkev1.UnrestoredConfigurationAnnotation], unrestoredWith(s.controlPlane, all)
	if before == after {
		return nil
	}
	annotations := maps.Clone(s.controlPlane.Annotations)
	metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, rkev1.UnrestoredConfigurationAnnotation, after)
	if err := s.patch.PatchObject(ctx, s.controlPlane); err != nil {
		s.controlPlane.Annotations = annotations
		return fmt.Errorf("writing the annotation %s: %w", rkev1.UnrestoredConfigurationAnnotation, err)
	}
	ctrl.LoggerFrom(ctx).Info("Recorded whether changes wait for the data of a snapshot", "before", before, "after", after)
	return nil
}

// unrestoredWith is the value that the annotation of a control plane gets with these operations of its cluster. It is set before the
// restore exists, and emptied when that restore or a later one has stopped all machines to replace their data, or when etcdSnapshotRestore
// is removed from the specification. It is never removed: a control plane without it had its last restore by a hub that did not know it.
func unrestoredWith(controlPlane *rkev1.RKEControlPlane, all []operationv1.Operation) string {
	asked := controlPlane.Spec.ETCDSnapshotRestore
	if asked == nil {
		return ""
	}
	value, known := controlPlane.Annotations[rkev1.UnrestoredConfigurationAnnotation]
	if _, generation, _ := strings.Cut(value, "/"); restoredSince(generation, all) {
		value = ""
	}
	if asked.RestoreRKEConfig == "" || asked.RestoreRKEConfig == "none" {
		return value
	}
	generation := strconv.Itoa(asked.Generation)
	next, i := restoreRequest.next(controlPlane, all)
	switch {
	case next == requestDone:
		return value
	case next == requestExists && restoredSince(generation, all):
		return ""
	case next == requestExists && operations.EndedIn(all[i]) != "" && (known || !unchanged(all[i])):
		return value
	}
	return asked.Name + "/" + generation
}

// restoredSince reports whether the restore that a generation has asked for, or a later one, has stopped all machines to replace their
// data. One that ended while it stopped them does not count: those that it had not stopped still run with the data of before.
func restoredSince(generation string, all []operationv1.Operation) bool {
	i := requestedBy(all, restoreLabel, generation)
	return slices.ContainsFunc(all[max(i, 0):], func(op operationv1.Operation) bool {
		_, restore := op.(*operationv1.ETCDSnapshotRestore)
		return operation.RestoresData(op) || restore && i >= 0 && operations.EndedIn(op) == operationv1.PhaseSucceeded
	})
}

// unchanged reports whether a restore has ended and says that it has changed nothing.
func unchanged(op operationv1.Operation) bool {
	restore, is := op.(*operationv1.ETCDSnapshotRestore)
	return is && restore.Status.Unchanged
}

// hold is why nothing that restarts machines may be delivered. Zero if it may.
func (s *scope) hold() rollout.Wait {
	unrestored := s.unrestored()
	if holds := operation.Holds(s.operation, s.tokenPending() && unrestored == ""); holds != "" {
		return rollout.Wait{Reason: rollout.ReasonWaitingForOperation, Message: "Waiting for " + holds + " to end"}
	}
	if unrestored == "" {
		return rollout.Wait{}
	}
	name, generation, _ := strings.Cut(unrestored, "/")
	if paused := s.pausedRestore(); paused != "" {
		return rollout.Wait{Reason: rollout.ReasonWaitingForOperation, Message: fmt.Sprintf("Waiting for spec.paused of ETCDSnapshotRestore "+
			"%s to become false: the Cluster has the configuration of ETCDSnapshot %s, whose data was not restored", paused, name)}
	}
	return rollout.Wait{Reason: rollout.ReasonRestoreFailed, Message: fmt.Sprintf("The Cluster has the configuration of ETCDSnapshot %s, and "+
		"ETCDSnapshotRestore %s ended or was deleted before its data was restored. Restore it with another generation, or set the "+
		"configuration back and remove spec.rkeConfig.etcdSnapshotRestore", name,
		rkev1.SafeConcat(s.clusterName(), restoreRequest.name, generation))}
}

// pausedRestore names a restore that was paused before it began; empty for none.
func (s *scope) pausedRestore() string {
	for _, op := range s.waiting {
		if s.operation != nil && s.operation.GetUID() == op.GetUID() {
			op = s.operation // as it was decided
		}
		if _, is := op.(*operationv1.ETCDSnapshotRestore); is && op.CommonSpec().Paused && !op.CommonStatus().Phase.Ended() {
			return op.GetName()
		}
	}
	return ""
}
