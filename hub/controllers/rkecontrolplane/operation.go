package rkecontrolplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/plans"
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

// findOperation finds the operation that is in progress, or else the one that begins next: that was created first, but a restore before all
// others, which may wait for what it repairs. Operations that have ended are deleted in time, and those that the specification asks for are
// created.
func (r *Reconciler) findOperation(ctx context.Context, s *scope) error {
	all, err := r.operationsOf(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	if err := r.recordUnrestored(ctx, s, all); err != nil {
		return err
	}
	created, err := r.ensureRequested(ctx, s, all)
	if err != nil {
		return err
	}
	if all, err = r.deleteOutdated(ctx, all); err != nil {
		return err
	}
	for _, op := range append(all, created...) {
		if rotation, is := op.(*operationv1.CertificateRotation); is {
			s.rotations = append(s.rotations, rotation)
		}
		if phase := operations.EndedIn(op); phase != "" {
			if err := r.expire(ctx, s, op, phase); err != nil {
				return err
			}
			continue
		}
		s.waiting = append(s.waiting, op)
	}
	if s.operation = operation.Next(s.waiting); s.operation == nil {
		return nil
	}
	s.observedOperation = operations.Copy(s.operation)
	return r.queue(ctx, s)
}

// queue writes the status of the operations that have not begun and wait for another one. They belong to the cluster from then on.
func (r *Reconciler) queue(ctx context.Context, s *scope) error {
	for _, op := range s.waiting {
		if op == s.operation || op.CommonStatus().Phase == operationv1.PhaseInProgress {
			continue
		}
		queued := operations.Copy(op)
		refused, err := r.refuseInUse(ctx, s, queued)
		if err != nil {
			return err
		}
		if !refused {
			operation.Queue(queued, r.Now())
		}
		err = r.operationWriter().Write(ctx, op, queued, []metav1.OwnerReference{s.clusterOwner()})
		if err != nil && !apierrors.IsGone(err) {
			return err
		}
		if queued.CommonStatus().Phase.Ended() {
			s.requeue(afterOperation)
		}
	}
	return nil
}

// refuseInUse ends an ETCDSnapshotDelete whose snapshot is to be restored, and reports whether it does. A refusal is final, and the cache
// may not have seen the end of the restore, after which users and scripts delete the snapshot at once.
func (r *Reconciler) refuseInUse(ctx context.Context, s *scope, op operationv1.Operation) (bool, error) {
	if !operation.RefuseInUse(operations.Copy(op), s.waiting, r.Now()) {
		return false, nil
	}
	live, err := r.liveOperations(ctx, s)
	if err != nil {
		return false, err
	}
	return operation.RefuseInUse(op, live, r.Now()), nil
}

// liveOperations returns the operations of the cluster that have not ended, in the order of their creation, as the API server has them.
func (r *Reconciler) liveOperations(ctx context.Context, s *scope) ([]operationv1.Operation, error) {
	cluster := client.ObjectKeyFromObject(s.cluster)
	live, err := operations.Of(ctx, r.Live, cluster, operations.Indexed(cluster))
	if kerrors.IsBadRequest(err) { // it does not know the field
		live, err = operations.Of(ctx, r.Live, cluster)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(live, func(op operationv1.Operation) bool { return operations.EndedIn(op) != "" }), nil
}

// suspendOperations writes the status of the operations of a cluster that is paused, and nothing else of it.
func (r *Reconciler) suspendOperations(ctx context.Context, s *scope) error {
	if s.cluster == nil || s.refused != nil {
		return nil
	}
	all, err := r.operationsOf(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	for _, op := range all {
		if operations.EndedIn(op) != "" {
			continue
		}
		suspended := operations.Copy(op)
		operation.Suspend(suspended, r.Now())
		if err := r.operationWriter().Write(ctx, op, suspended, nil); err != nil && !apierrors.IsGone(err) {
			return err
		}
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

// decideOperation decides how the operation goes on, and puts its tasks into the plans of the machines that do them now.
func (r *Reconciler) decideOperation(ctx context.Context, s *scope) error {
	if s.operation == nil {
		return nil
	}
	s.operation, s.deleteNodes, s.deletedSnapshot = operations.Copy(s.observedOperation), nil, nil
	if s.holdsOperation(r.Signer.Restored()) {
		operation.HoldFor(s.operation, r.Now(), s.outdated.Reason, s.outdated.Message)
		return nil
	}
	in := operation.Inputs{Now: r.Now(), Since: r.started, Bootstrapped: s.bootstrapped(), Runtime: s.release.Runtime,
		UnmanagedConfig: s.controlPlane.Spec.UnmanagedConfig, Connected: s.nodes != nil, StrayNodes: s.strayNodes(),
		Stopped: len(s.stoppedMachines()) > 0, TokenPending: s.tokenPending(), Unrestored: s.unrestored() != "",
		Restored: r.Signer.Restored()}
	if p := conditions.Get(s.controlPlane, clusterv1.PausedCondition); p != nil && p.LastTransitionTime.After(in.Since) {
		in.Since = p.LastTransitionTime.Time
	}
	for _, m := range s.machines {
		has := render.HasTask(m.report.Delivered, s.operation, s.operation.CommonStatus().Step)
		in.Machines = append(in.Machines, operation.Machine{Machine: m.state, Has: has, Windows: m.inputs.OS == "windows",
			CertificatesEnd: m.certificatesEnd()})
	}
	if operation.RefuseOtherNamespace(s.operation, in.Now) {
		return nil
	}
	if refused, err := r.refuseInUse(ctx, s, s.operation); refused || err != nil {
		return err
	}
	if err := r.readSnapshot(ctx, s, &in); err != nil {
		return err
	}
	toDelete, err := r.readDeletion(ctx, s, &in)
	if err != nil {
		return err
	}
	decision := operation.Decide(s.operation, in)
	s.requeue(decision.Again)
	s.deleteNodes = decision.DeleteNodes
	if decision.DeleteSnapshot {
		s.deletedSnapshot = toDelete
	}
	put := r.addTask
	if !s.tokensReady() {
		s.requeue(tokensPoll)
		put = r.keepPlan
	}
	for i, m := range s.machines {
		m.state.LeftOut = decision.LeftOut[m.machine.Name]
		if m.secret == nil || m.state.Deleting {
			continue
		}
		if decision.KeepTasks && in.Machines[i].Has {
			r.keepTask(m)
		}
		task, is := decision.Tasks[m.machine.Name]
		if !is {
			continue
		}
		if err := put(s, m, task); err != nil {
			return err
		}
	}
	return nil
}

// keepTask keeps the delivered plan of a machine to the byte: another version of the hub has made it, which may know fields that this one
// would leave out.
func (r *Reconciler) keepTask(m *machine) {
	if !r.Signer.Signed(m.secret.Data, m.secret.Namespace+"/"+m.secret.Name) {
		return
	}
	m.plan, m.encoded = m.report.Delivered, m.secret.Data[plans.KeyPlan]
	m.invalid = m.plan.Validate()
	m.state.Problem, m.state.Change = m.problem(), m.change()
}

// addTask puts a task into the plan of a machine. Unless the task is one of the wanted plan, the plan is the delivered one with the task:
// no other change comes along. One that has the task stays as it is, whatever changes meanwhile: nothing is done twice.
func (r *Reconciler) addTask(s *scope, m *machine, task operation.Task) error {
	// A plan that somebody else has written into the Secret must not be signed.
	signed := m.report.Checksum != "" && r.Signer.Signed(m.secret.Data, m.secret.Namespace+"/"+m.secret.Name)
	has := signed && render.HasTask(m.report.Delivered, s.operation, task.Step)
	if s.unrestored() != "" && !task.Regardless && !has && (task.Rendered || !signed) {
		return r.keepPlan(s, m, task) // the rendered plan has the configuration that is held back
	}
	switch {
	case has || signed && !task.Rendered:
		m.plan = m.report.Delivered
	case task.Apart && m.report.Checksum == "":
		m.plan = plans.Plan{} // the machine has nothing of the cluster yet, and is to get nothing
	case task.Rendered && !m.state.Init && m.joinURL == "":
		m.plan.Error = "there is no server that the machine can join" // it would start a cluster of its own
	}
	if !has {
		m.inputs.Unapplied = m.state.Progress != rollout.ProgressApplied && m.state.Underway != rollout.ChangeFirst
		m.plan = render.WithTask(s.inputs, m.inputs, m.plan, s.operation, task)
	}
	m.state.Task, m.state.Regardless = true, task.Regardless
	return m.encodePlan()
}

// encodePlan follows a change of the plan.
func (m *machine) encodePlan() (err error) {
	if m.encoded, err = m.plan.Encode(); err != nil {
		return fmt.Errorf("encoding the plan of %s: %w", m.machine.Name, err)
	}
	m.invalid = m.plan.Validate()
	m.state.Problem, m.state.Change = m.problem(), m.change()
	return nil
}

// checkOperation fails with a conflict where the API server has another operation in progress, or next, than this reconcile has found, or
// another version of it. Servers would change beside a restore that the cache does not have yet, or get the tasks of an earlier step.
func (r *Reconciler) checkOperation(ctx context.Context, s *scope) error {
	if r.manager == nil {
		return nil // a preview does not look for operations
	}
	live, err := r.liveOperations(ctx, s)
	if err != nil {
		return err
	}
	known, next := s.observedOperation, operation.Next(live)
	switch {
	case next == nil && known == nil:
		return nil
	case next == nil:
		return errOperationBehind(known, "it has ended or was deleted, and the hub has not read that yet")
	case known == nil || known.GetUID() != next.GetUID() || known.GetResourceVersion() != next.GetResourceVersion():
		return errOperationBehind(next, "the hub has not read its latest version yet")
	}
	return nil
}

// errOperationBehind is the conflict of an operation that the cache does not have as it is.
func errOperationBehind(op operationv1.Operation, why string) error {
	resource := operationv1.GroupVersion.WithResource(strings.ToLower(operationv1.Kind(op)) + "s")
	return kerrors.NewConflict(resource.GroupResource(), op.GetName(), errors.New(why))
}

// writeOperation writes what was decided of the operation, before the plans that follow from it.
func (r *Reconciler) writeOperation(ctx context.Context, s *scope) error {
	if s.operation == nil {
		return nil
	}
	if s.operation.CommonStatus().Phase.Ended() {
		s.requeue(afterOperation)
	}
	err := r.operationWriter().Write(ctx, s.observedOperation, s.operation, []metav1.OwnerReference{s.clusterOwner()})
	if err == nil {
		r.reconnectRestored(s)
	}
	return err
}
