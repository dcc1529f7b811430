package etcdsnapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/paused"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/hub/util/predicates"
	"github.com/drover-dev/drover/hub/util/ssa"
)

const (
	controllerName = "etcdsnapshot"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
)

// Reconciler reconciles the ETCDSnapshots of Clusters.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Cache reads plan Secrets, which Client reads past the cache; SetupWithManager sets it.
	Cache client.Reader
	// ClusterCache holds the connections to the clusters; required.
	ClusterCache clustercache.ClusterCache
	// Registerer gets the metric of the newest snapshots; nil for none.
	Registerer prometheus.Registerer
	// Now is the clock; SetupWithManager sets it.
	Now func() time.Time

	controller controller.Controller
	// applied holds what was applied, of each ETCDSnapshot for itself.
	applied *ssa.Cache
}

// SetupWithManager registers the controller. ETCDSnapshotFiles and Nodes are watched per cluster, as soon as the cluster is connected.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Now = mgr.GetClient(), mgr.GetCache(), time.Now
	r.applied = &ssa.Cache{Client: r.Client, FieldOwner: fieldOwner}
	if r.Registerer != nil {
		if err := r.Registerer.Register(newCollector(r.Cache, mgr.Elected())); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&rkev1.ETCDSnapshot{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(rkev1.ClusterNameLabel)),
			builder.WithPredicates(r.forgetDeleted(), changedByOthers)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(rkev1.ClusterNameLabel)),
			builder.WithPredicates(checksumsChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(clusterv1.ClusterNameLabel)),
			builder.WithPredicates(nodeFound)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(clusterv1.ClusterNameLabel)),
			builder.WithPredicates(paused.Unpaused)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, func(_ context.Context, o client.Object) []ctrl.Request {
			return []ctrl.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
		})).
		WithOptions(opts).
		Build(apierrors.Requeue(r))
	return err
}

// forgetDeleted passes all events, and drops what was applied to ETCDSnapshots that are deleted.
func (r *Reconciler) forgetDeleted() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		r.applied.Forget(client.ObjectKeyFromObject(e.Object))
		return true
	}}
}

// changedByOthers passes deletions, and updates of what this controller applies; and those of status.missing, also its own: the cache may
// not have had the last one when the file was listed again, so that it looked as if there was nothing to write.
var changedByOthers = predicate.And(
	predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }},
	predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		predicate.AnnotationChangedPredicate{},
		predicates.OnUpdate(func(before, after *rkev1.ETCDSnapshot) bool { return before.Status.Missing != after.Status.Missing })),
)

// checksumsChanged passes plan Secrets of machines that have saved a snapshot.
var checksumsChanged = predicate.And(
	predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false }},
	predicate.NewPredicateFuncs(plansecrets.IsPlanSecret),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		const key = rkev1.SnapshotChecksumsAnnotation
		return e.ObjectOld.GetAnnotations()[key] != e.ObjectNew.GetAnnotations()[key]
	}},
)

// nodeFound passes Machines with etcd whose Node has become known. The file of a snapshot may have been seen before.
var nodeFound = predicate.And(
	predicate.NewPredicateFuncs(func(machine client.Object) bool { return machine.GetLabels()[rkev1.EtcdRoleLabel] == "true" }),
	predicates.OnUpdate(func(before, after *clusterv1.Machine) bool { return before.Status.NodeRef != after.Status.NodeRef }),
)

// Reconcile makes the ETCDSnapshots of a cluster follow what the cluster lists. Without a connection nothing is known, and all stay as they
// are.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	found, err := objects.Get(ctx, r.Client, req.NamespacedName, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	controlPlane, _, err := ownership.ControlPlane(ctx, r.Client, cluster)
	if err != nil || controlPlane == nil || annotations.IsPaused(cluster, controlPlane) {
		return ctrl.Result{}, err
	}
	files, err := r.list(ctx, req)
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		return ctrl.Result{}, nil // the source of connections tells when it is connected
	case errors.Is(err, errNoKind):
		return ctrl.Result{RequeueAfter: kindInterval}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	requeueAfter, err := r.follow(ctx, cluster, files)
	return ctrl.Result{RequeueAfter: requeueAfter}, err
}

// node is a Node in the cache of a cluster, which must not be changed; nil if there is none.
func (r *Reconciler) node(ctx context.Context, cluster client.ObjectKey, name string) (*corev1.Node, error) {
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	if found, err := objects.Get(ctx, reader, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy); err != nil || !found {
		return nil, err
	}
	return node, nil
}
