package nodesync

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/message"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

const controllerName = "nodesync"

const fieldOwner = client.FieldOwner("drover-nodesync")

// Reconciler syncs labels and taints of RKEBootstraps to their Nodes.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Cache reads plan Secrets; SetupWithManager sets it.
	Cache client.Reader
	// ClusterCache holds the connections to the clusters. It is required.
	ClusterCache clustercache.ClusterCache

	controller controller.Controller
}

// SetupWithManager registers the controller. Nodes are watched per cluster, as soon as the cluster is connected.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache = mgr.GetClient(), mgr.GetCache()
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.RKEBootstrap{}, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.MachineToBootstrap), builder.WithPredicates(nodeRefChanged)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(planToBootstrap), builder.WithPredicates(nodeLabelsChanged)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToBootstraps), builder.WithPredicates(pauseChanged)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToBootstraps)).
		WithOptions(opts).
		Build(apierrors.Requeue(r))
	return err
}

// Reconcile syncs one Node. Every wait ends with a watch: of the Machine, of the Cluster, of its connection, or of its Nodes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	bootstrap := &rkev1.RKEBootstrap{}
	if err := r.Client.Get(ctx, req.NamespacedName, bootstrap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, _, err := ownership.Machine(ctx, r.Client, bootstrap)
	if err != nil || machine == nil {
		return ctrl.Result{}, err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case !bootstrap.DeletionTimestamp.IsZero(), !machine.DeletionTimestamp.IsZero(), !cluster.DeletionTimestamp.IsZero():
		return ctrl.Result{}, nil
	case annotations.IsPaused(cluster, machine), annotations.HasPaused(bootstrap):
		return ctrl.Result{}, nil
	case !machine.Status.NodeRef.IsDefined():
		return ctrl.Result{}, nil
	}
	plan := &corev1.Secret{}
	key := client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	if _, err := objects.Get(ctx, r.Cache, key, plan, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	w := readWanted(machine, bootstrap, plan)
	done, err := r.syncToNode(ctx, client.ObjectKeyFromObject(cluster), machine, w)
	if apierrors.IsRefused(err) {
		w.refused = message.Bound(err.Error(), message.MaxError)
		return ctrl.Result{}, errors.Join(err, r.report(ctx, bootstrap, w))
	}
	if err != nil || !done {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, bootstrap, w)
}
