package rkecluster

import (
	"context"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// Finalizer keeps an RKECluster until the cluster has no Machines.
const Finalizer = "rke.cattle.io/rkecluster"

const fieldOwner = client.FieldOwner("drover-rkecluster")

// Reconciler reconciles RKEClusters.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client = mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).
		Named("rkecluster").
		For(&rkev1.RKECluster{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ClusterToRKECluster),
			builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.machineToRKECluster)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// Reconcile writes the status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	infra := &rkev1.RKECluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, infra); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The contract of Cluster API leaves it to another program. The hub removes its own finalizer, which is from before the annotation.
	if annotations.IsExternallyManaged(infra) &&
		(infra.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(infra, Finalizer)) {
		return ctrl.Result{}, nil
	}
	s := &scope{infra: infra}
	var err error
	if s.cluster, s.refused, err = ownership.Cluster(ctx, r.Client, infra); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, infra); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, infra, Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, infra, fieldOwner, ownedConditions...)
	defer func() {
		setStatus(s)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, infra)})
	}()
	if !infra.DeletionTimestamp.IsZero() {
		s.err = r.reconcileDelete(ctx, s)
		return ctrl.Result{}, s.err
	}
	return ctrl.Result{}, nil
}

// machineToRKECluster maps a Machine that is being deleted, which a deletion waits for.
func (r *Reconciler) machineToRKECluster(ctx context.Context, o client.Object) []ctrl.Request {
	machine, ok := o.(*clusterv1.Machine)
	if !ok || machine.DeletionTimestamp.IsZero() {
		return nil
	}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	return mapfuncs.OfCluster(ctx, r.Client, key, mapfuncs.ClusterToRKECluster)
}
