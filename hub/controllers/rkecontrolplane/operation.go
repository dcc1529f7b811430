package rkecontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/objects"
)

// afterOperation is when the next operation begins, or the one that has ended is deleted, if nothing else changes before.
const afterOperation = time.Second

// operationToControlPlane maps an operation to the RKEControlPlane of its Cluster.
func (r *Reconciler) operationToControlPlane(ctx context.Context, object client.Object) []ctrl.Request {
	op, ok := object.(operationv1.Operation)
	if !ok {
		return nil
	}
	return r.ofCluster(ctx, op.GetNamespace(), op.CommonSpec().ClusterRef.Name)
}

// findOperation finds the operation that is in progress, or else the one that was created first. Operations that have ended are deleted in
// time, and those that the specification asks for are created.
func (r *Reconciler) findOperation(ctx context.Context, s *scope) error {
	operations, err := r.listOperations(ctx, s)
	if err != nil {
		return err
	}
	if err := r.ensureRequested(ctx, s, operations); err != nil {
		return err
	}
	for _, op := range operations {
		if rotation, is := op.(*operationv1.CertificateRotation); is {
			s.rotations = append(s.rotations, rotation)
		}
		// The status may have been lost, or be older than the annotation, which is written first.
		if phase := phaseOf(op); phase.Ended() {
			if err := r.expire(ctx, s, op, phase); err != nil {
				return err
			}
			continue
		}
		if s.operation == nil || operation.InProgress(op) != "" && operation.InProgress(s.operation) == "" {
			s.operation = op
		}
	}
	if s.operation != nil {
		s.observedOperation = copyOf(s.operation)
	}
	return nil
}

// listOperations returns the operations of the cluster in the order of their creation.
func (r *Reconciler) listOperations(ctx context.Context, s *scope) (operations []operationv1.Operation, _ error) {
	for _, list := range operationv1.Lists() {
		if err := r.Client.List(ctx, list, client.InNamespace(s.controlPlane.Namespace)); err != nil {
			return nil, fmt.Errorf("listing operations: %w", err)
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			op := item.(operationv1.Operation)
			if op.CommonSpec().ClusterRef.Name == s.cluster.Name && op.GetDeletionTimestamp().IsZero() {
				operations = append(operations, op)
			}
			return nil
		})
	}
	slices.SortFunc(operations, func(a, b operationv1.Operation) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(operation.Kind(a), operation.Kind(b)),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	return operations, nil
}

func copyOf(op operationv1.Operation) operationv1.Operation {
	return op.DeepCopyObject().(operationv1.Operation)
}

// expire deletes an operation that has ended, after the seconds in its spec.ttl. A status that was lost is written again.
func (r *Reconciler) expire(ctx context.Context, s *scope, op operationv1.Operation, phase operationv1.Phase) error {
	spec, status := op.CommonSpec(), op.CommonStatus()
	if status.Phase != phase || status.TerminatedAt == nil {
		base, at := copyOf(op), metav1.NewTime(r.Now())
		status.Phase, status.LastUpdated, status.TerminatedAt = phase, &at, &at
		if err := r.Client.Status().Patch(ctx, op, client.MergeFrom(base), fieldOwner); err != nil {
			return fmt.Errorf("writing the status of %s %s: %w", operation.Kind(op), op.GetName(), err)
		}
	}
	if spec.TTL < 0 || spec.Paused {
		return nil
	}
	left := time.Duration(spec.TTL)*time.Second - r.Now().Sub(status.TerminatedAt.Time)
	if left > 0 {
		s.requeue(left)
		return nil
	}
	uid := op.GetUID()
	return objects.Delete(ctx, r.Client, op, client.Preconditions{UID: &uid})
}

// decideOperation decides how the operation goes on, and puts its tasks into the plans of the machines that do them now. Such a plan is the
// delivered one with the task: no other change comes along.
func (r *Reconciler) decideOperation(s *scope) error {
	if s.operation == nil {
		return nil
	}
	s.operation = copyOf(s.observedOperation)
	in := operation.Inputs{Now: r.Now(), Since: r.started, Bootstrapped: s.bootstrapped(), Runtime: s.release.Runtime}
	if p := conditions.Get(s.controlPlane, clusterv1.PausedCondition); p != nil && p.LastTransitionTime.After(in.Since) {
		in.Since = p.LastTransitionTime.Time
	}
	for _, m := range s.machines {
		has := render.HasTask(m.report.Delivered, s.operation, s.operation.CommonStatus().Step)
		in.Machines = append(in.Machines, operation.Machine{Machine: m.state, Has: has})
	}
	if ref := s.operation.CommonSpec().ClusterRef; ref.Namespace != "" && ref.Namespace != s.operation.GetNamespace() {
		operation.Refuse(s.operation, in.Now, fmt.Sprintf("spec.clusterRef names %s %s (%s) in the namespace %s; an operation is in the "+
			"namespace of its Cluster, so spec.clusterRef.namespace must be empty or %s", ref.Kind, ref.Name, ref.APIVersion, ref.Namespace,
			s.operation.GetNamespace()))
		return nil
	}
	decision := operation.Decide(s.operation, in)
	s.requeue(decision.Again)
	for _, m := range s.machines {
		task, is := decision.Tasks[m.machine.Name]
		if !is || m.secret == nil {
			continue
		}
		// A plan that somebody else has written into the Secret must not be signed.
		if m.report.Checksum != "" && r.Signer.Signed(m.secret.Data, m.secret.Namespace+"/"+m.secret.Name) {
			m.plan = m.report.Delivered
		}
		if !render.HasTask(m.plan, s.operation, task.Step) {
			m.plan = render.WithTask(s.inputs, m.inputs, m.plan, s.operation, task)
		}
		encoded, err := m.plan.Encode()
		if err != nil {
			return fmt.Errorf("encoding the plan of %s: %w", m.machine.Name, err)
		}
		m.encoded = encoded
		m.state.Problem, m.state.Change = m.problem(), m.change()
		m.state.Task, m.state.Regardless = true, task.Regardless
	}
	return nil
}

// writeOperation writes what was decided of the operation, before the plans that follow from it.
func (r *Reconciler) writeOperation(ctx context.Context, s *scope) error {
	if s.operation == nil {
		return nil
	}
	op, before := copyOf(s.operation), s.observedOperation.CommonStatus()
	status := *s.operation.CommonStatus()
	if status.Phase.Ended() {
		s.requeue(afterOperation)
		annotations := op.GetAnnotations()
		setOrDelete(&annotations, operationv1.EndedAnnotation, string(status.Phase))
		op.SetAnnotations(annotations)
	}
	op.SetOwnerReferences([]metav1.OwnerReference{s.clusterOwner()})
	if !maps.Equal(op.GetAnnotations(), s.observedOperation.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(op.GetOwnerReferences(), s.observedOperation.GetOwnerReferences()) {
		metadata := client.MergeFromWithOptions(s.observedOperation, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, op, metadata, fieldOwner); err != nil {
			return fmt.Errorf("writing %s %s: %w", operation.Kind(op), op.GetName(), err)
		}
	}
	if equality.Semantic.DeepEqual(status, *before) {
		return nil
	}
	base := copyOf(op)
	*base.CommonStatus(), *op.CommonStatus() = *before, status
	statusPatch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, op, statusPatch, fieldOwner); err != nil {
		return fmt.Errorf("writing the status of %s %s: %w", operation.Kind(op), op.GetName(), err)
	}
	if c := conditions.Get(op, operationv1.SucceededCondition); c != nil && (status.Phase != before.Phase || status.Step != before.Step) {
		ctrl.LoggerFrom(ctx).Info("An operation goes on", operation.Kind(op), client.ObjectKeyFromObject(op), "phase", status.Phase,
			"step", status.Step, "message", c.Message)
	}
	return nil
}
