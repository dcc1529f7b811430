package rkecontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/objects"
)

// afterOperation is when the next operation begins, or the one that has ended is deleted, if nothing else changes before.
const afterOperation = time.Second

// operationToControlPlane maps an operation to the RKEControlPlane of its Cluster.
func (r *Reconciler) operationToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	op, ok := object.(*operationv1.ETCDSnapshotSave)
	if !ok {
		return nil
	}
	return r.ofCluster(ctx, op.Namespace, op.Spec.ClusterRef.Name)
}

// findOperation finds the operation that is in progress, or else the one that was created first. Operations that have ended are deleted in
// time, and one that the specification asks for is created.
func (r *Reconciler) findOperation(ctx context.Context, s *scope) error {
	var list operationv1.ETCDSnapshotSaveList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.controlPlane.Namespace)); err != nil {
		return fmt.Errorf("listing ETCDSnapshotSaves: %w", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(op operationv1.ETCDSnapshotSave) bool {
		return op.Spec.ClusterRef.Name != s.cluster.Name || !op.DeletionTimestamp.IsZero()
	})
	slices.SortFunc(list.Items, func(a, b operationv1.ETCDSnapshotSave) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if err := r.ensureRequestedSnapshot(ctx, s, list.Items); err != nil {
		return err
	}
	for i := range list.Items {
		op := &list.Items[i]
		// The status may have been lost, or be older than the annotation, which is written first.
		phase := op.Status.Phase
		if !phase.Ended() {
			phase = operationv1.Phase(op.Annotations[operationv1.EndedAnnotation])
		}
		if phase.Ended() {
			if err := r.expire(ctx, s, op, phase); err != nil {
				return err
			}
			continue
		}
		if s.operation == nil || op.Status.Phase == operationv1.PhaseInProgress && s.operation.Status.Phase != operationv1.PhaseInProgress {
			s.operation = op
		}
	}
	if s.operation != nil {
		s.observedOperation = s.operation.DeepCopy()
	}
	return nil
}

// expire deletes an operation that has ended, after the seconds in its spec.ttl. A status that was lost is written again.
func (r *Reconciler) expire(ctx context.Context, s *scope, op *operationv1.ETCDSnapshotSave, phase operationv1.Phase) error {
	if op.Status.Phase != phase || op.Status.TerminatedAt == nil {
		base, at := op.DeepCopy(), metav1.NewTime(r.Now())
		op.Status.Phase, op.Status.LastUpdated, op.Status.TerminatedAt = phase, &at, &at
		if err := r.Client.Status().Patch(ctx, op, client.MergeFrom(base), fieldOwner); err != nil {
			return fmt.Errorf("writing the status of ETCDSnapshotSave %s: %w", op.Name, err)
		}
	}
	if op.Spec.TTL < 0 || op.Spec.Paused {
		return nil
	}
	left := time.Duration(op.Spec.TTL)*time.Second - r.Now().Sub(op.Status.TerminatedAt.Time)
	if left > 0 {
		s.requeue(left)
		return nil
	}
	return objects.Delete(ctx, r.Client, op, client.Preconditions{UID: &op.UID})
}

// decideOperation decides how the operation goes on, and puts its instruction into the plans of the machines that run it now. Such a plan
// is the delivered one with the instruction: no other change comes along.
func (r *Reconciler) decideOperation(s *scope) error {
	if s.operation == nil {
		return nil
	}
	in := operation.Inputs{Now: r.Now(), Bootstrapped: s.bootstrapped()}
	for _, m := range s.machines {
		in.Machines = append(in.Machines, operation.Machine{Machine: m.state, Has: render.HasSnapshotSave(m.report.Delivered, s.operation)})
	}
	s.operation = s.observedOperation.DeepCopy()
	if ref := s.operation.Spec.ClusterRef; ref.Namespace != "" && ref.Namespace != s.operation.Namespace {
		operation.Refuse(s.operation, in.Now, fmt.Sprintf("spec.clusterRef names %s %s (%s) in the namespace %s; an operation is in the "+
			"namespace of its Cluster, so spec.clusterRef.namespace must be empty or %s", ref.Kind, ref.Name, ref.APIVersion, ref.Namespace,
			s.operation.Namespace))
		return nil
	}
	run, again := operation.DecideSnapshotSave(s.operation, in)
	s.requeue(again)
	for _, m := range s.machines {
		if !slices.Contains(run, m.machine.Name) || m.secret == nil {
			continue
		}
		// A plan that somebody else has written into the Secret must not be signed.
		if m.report.Checksum != "" && r.Signer.Signed(m.secret.Data, m.secret.Namespace+"/"+m.secret.Name) {
			m.plan = m.report.Delivered
		}
		if !render.HasSnapshotSave(m.plan, s.operation) {
			m.plan = render.WithSnapshotSave(s.inputs, m.plan, s.operation)
		}
		encoded, err := m.plan.Encode()
		if err != nil {
			return fmt.Errorf("encoding the plan of %s: %w", m.machine.Name, err)
		}
		m.encoded = encoded
		m.state.Problem, m.state.Change = m.problem(), m.change()
	}
	return nil
}

// writeOperation writes what was decided of the operation, before the plans that follow from it.
func (r *Reconciler) writeOperation(ctx context.Context, s *scope) error {
	if s.operation == nil {
		return nil
	}
	op, base := s.operation.DeepCopy(), s.observedOperation.DeepCopy()
	status := op.Status
	if status.Phase.Ended() {
		s.requeue(afterOperation)
		metav1.SetMetaDataAnnotation(&op.ObjectMeta, operationv1.EndedAnnotation, string(status.Phase))
	}
	op.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name,
		UID: s.cluster.UID}}
	if !equality.Semantic.DeepEqual(op.ObjectMeta, base.ObjectMeta) {
		if err := r.Client.Patch(ctx, op, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
			return fmt.Errorf("writing ETCDSnapshotSave %s: %w", op.Name, err)
		}
	}
	if equality.Semantic.DeepEqual(status, base.Status) {
		return nil
	}
	base = op.DeepCopy()
	base.Status = s.observedOperation.Status
	op.Status = status
	statusPatch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, op, statusPatch, fieldOwner); err != nil {
		return fmt.Errorf("writing the status of ETCDSnapshotSave %s: %w", op.Name, err)
	}
	if c := conditions.Get(op, operationv1.SucceededCondition); c != nil && status.Phase != s.observedOperation.Status.Phase {
		ctrl.LoggerFrom(ctx).Info("An operation has another phase", "ETCDSnapshotSave", client.ObjectKeyFromObject(op), "phase", status.Phase,
			"message", c.Message)
	}
	return nil
}

// requestLabel, on an operation, is the generation in the specification that asked for it.
const requestLabel = "rke.cattle.io/etcd-snapshot-create"

// snapshotPhases are the values of status.etcdSnapshotCreatePhase, as Rancher has them.
var snapshotPhases = map[operationv1.Phase]string{
	operationv1.PhaseInProgress: "Started", operationv1.PhaseSucceeded: "Finished", operationv1.PhaseFailed: "Failed",
	operationv1.PhaseCanceled: "Failed",
}

// ensureRequestedSnapshot creates the operation for spec.etcdSnapshotCreate, and reports how far it is. A generation that the status knows
// was asked for before: its operation is not created again.
func (r *Reconciler) ensureRequestedSnapshot(ctx context.Context, s *scope, operations []operationv1.ETCDSnapshotSave) error {
	wanted, status := s.controlPlane.Spec.ETCDSnapshotCreate, &s.controlPlane.Status
	if wanted == nil || wanted.Generation == 0 {
		return nil
	}
	generation := strconv.Itoa(wanted.Generation)
	i := slices.IndexFunc(operations, func(op operationv1.ETCDSnapshotSave) bool {
		return op.Labels[requestLabel] == generation
	})
	known := status.ETCDSnapshotCreate != nil && status.ETCDSnapshotCreate.Generation == wanted.Generation
	switch {
	case i >= 0 && (known || status.ETCDSnapshotCreate == nil):
		status.ETCDSnapshotCreate = wanted.DeepCopy()
		status.ETCDSnapshotCreatePhase = snapshotPhases[operations[i].Status.Phase]
		return nil
	case known:
		return nil
	case i >= 0: // the generation was used before the last one
		return objects.Delete(ctx, r.Client, &operations[i], client.Preconditions{UID: &operations[i].UID})
	}
	op := &operationv1.ETCDSnapshotSave{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.controlPlane.Namespace, Name: rkev1.SafeConcat(s.cluster.Name, "snapshot", generation),
			Labels: map[string]string{rkev1.ClusterNameLabel: s.cluster.Name, requestLabel: generation},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name,
				UID: s.cluster.UID}},
		},
		Spec: operationv1.ETCDSnapshotSaveSpec{Spec: operationv1.Spec{TTL: -1, ClusterRef: operationv1.ClusterReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name,
		}}},
	}
	// The cache may not have it yet.
	if err := r.Client.Create(ctx, op, fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ETCDSnapshotSave %s: %w", op.Name, err)
	}
	status.ETCDSnapshotCreate, status.ETCDSnapshotCreatePhase = wanted.DeepCopy(), ""
	return nil
}
