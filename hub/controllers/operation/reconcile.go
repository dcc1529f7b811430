package operation

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	operationplan "github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/operations"
)

// afterEnd is when an operation that has ended is looked at again, to be deleted in time.
const afterEnd = time.Second

// of returns the reconciler of the operations of a kind.
func (r *Reconciler) of(kind operationv1.Operation) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		r.begin.Do(func() { r.started = r.Now() })
		op := operations.Copy(kind)
		found, err := objects.Get(ctx, r.Client, req.NamespacedName, op)
		if err != nil || !found || !op.GetDeletionTimestamp().IsZero() {
			return ctrl.Result{}, err
		}
		managed, cluster, err := r.cluster(ctx, client.ObjectKey{Namespace: req.Namespace, Name: op.CommonSpec().ClusterRef.Name})
		if err != nil || managed {
			return ctrl.Result{}, err
		}
		after, err := r.reconcile(ctx, op, cluster)
		return ctrl.Result{RequeueAfter: after}, err
	})
}

// cluster returns whether the controller of an RKEControlPlane carries out the operations of a cluster, and otherwise what there is of it.
func (r *Reconciler) cluster(ctx context.Context, key client.ObjectKey) (managed bool, _ operationplan.ClusterState, _ error) {
	cluster := &clusterv1.Cluster{}
	found, err := objects.Get(ctx, r.Client, key, cluster)
	if err != nil {
		return false, 0, err
	}
	if controlPlane := mapfuncs.ClusterToControlPlane(ctx, cluster); len(controlPlane) > 0 {
		managed, err = objects.Get(ctx, r.Client, controlPlane[0].NamespacedName, &rkev1.RKEControlPlane{})
		return managed, operationplan.ClusterCreating, err
	}
	switch {
	case found && cluster.Spec.ControlPlaneRef.IsDefined():
		return false, operationplan.ClusterOfOtherProvider, nil
	case found:
		return false, operationplan.ClusterCreating, nil
	}
	provisioning := &provisioningv1.Cluster{}
	if found, err = objects.Get(ctx, r.Client, key, provisioning); err != nil {
		return false, 0, err
	}
	switch {
	case !found:
		return false, operationplan.ClusterNotFound, nil
	case provisioning.Spec.RKEConfig == nil:
		return false, operationplan.ClusterImported, nil
	}
	return false, operationplan.ClusterCreating, nil
}

// reconcile decides about an operation and writes that; it returns when to look at it again.
func (r *Reconciler) reconcile(ctx context.Context, op operationv1.Operation, cluster operationplan.ClusterState) (time.Duration, error) {
	w := operations.Writer{Client: r.Client, FieldOwner: fieldOwner, Metrics: r.Operations}
	if phase := operations.EndedIn(op); phase != "" {
		return w.Expire(ctx, op, phase, r.Now())
	}
	observed, again := operations.Copy(op), time.Duration(0)
	if !operationplan.RefuseOtherNamespace(op, r.Now()) {
		again = operationplan.DecideUnmanaged(op, cluster, r.Now(), r.started)
	}
	if op.CommonStatus().Phase.Ended() {
		again = afterEnd
	}
	return again, w.Write(ctx, observed, op, nil)
}
