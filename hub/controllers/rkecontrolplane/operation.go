package rkecontrolplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/operations"
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
	all, err := operations.Of(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	if err := r.ensureRequested(ctx, s, all); err != nil {
		return err
	}
	for _, op := range all {
		if rotation, is := op.(*operationv1.CertificateRotation); is {
			s.rotations = append(s.rotations, rotation)
		}
		if phase := operations.EndedIn(op); phase != "" {
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
		s.observedOperation = operations.Copy(s.operation)
	}
	return nil
}

// expire deletes an operation that has ended in time.
func (r *Reconciler) expire(ctx context.Context, s *scope, op operationv1.Operation, phase operationv1.Phase) error {
	left, err := r.operationWriter().Expire(ctx, op, phase, r.Now())
	s.requeue(left)
	return err
}

func (r *Reconciler) operationWriter() operations.Writer {
	return operations.Writer{Client: r.Client, FieldOwner: fieldOwner, Metrics: r.Operations}
}

// decideOperation decides how the operation goes on, and puts its tasks into the plans of the machines that do them now. Such a plan is the
// delivered one with the task: no other change comes along.
func (r *Reconciler) decideOperation(s *scope) error {
	if s.operation == nil {
		return nil
	}
	s.operation = operations.Copy(s.observedOperation)
	in := operation.Inputs{Now: r.Now(), Since: r.started, Bootstrapped: s.bootstrapped(), Runtime: s.release.Runtime}
	if p := conditions.Get(s.controlPlane, clusterv1.PausedCondition); p != nil && p.LastTransitionTime.After(in.Since) {
		in.Since = p.LastTransitionTime.Time
	}
	for _, m := range s.machines {
		has := render.HasTask(m.report.Delivered, s.operation, s.operation.CommonStatus().Step)
		in.Machines = append(in.Machines, operation.Machine{Machine: m.state, Has: has})
	}
	if operation.RefuseOtherNamespace(s.operation, in.Now) {
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
	if s.operation.CommonStatus().Phase.Ended() {
		s.requeue(afterOperation)
	}
	return r.operationWriter().Write(ctx, s.observedOperation, s.operation, []metav1.OwnerReference{s.clusterOwner()})
}
