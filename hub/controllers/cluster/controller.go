package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	hubapierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/move"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/pace"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/ssa"
)

const (
	// Finalizer keeps a Cluster until all its objects are deleted.
	Finalizer = "provisioning.cattle.io/drover"

	fieldOwner = client.FieldOwner("drover-cluster")
)

// Reconciler reconciles Clusters of provisioning.cattle.io: those with an rkeConfig, which the hub creates, and those without one, which
// are imported.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Cache reads the metadata of Secrets, which Client reads from the API server; SetupWithManager sets it.
	Cache client.Reader
	// Live reads past the cache, for deletions; SetupWithManager sets it.
	Live client.Reader
	// Work paces the controller. It is required.
	Work *pace.Work

	// ssa applies objects, without a request where nothing would change.
	ssa *ssa.Cache
	// tracker watches kinds of providers, each from the first Cluster on that refers to it.
	tracker *external.ObjectTracker
	// moveCleanup deletes the management Clusters of Clusters that were moved to another hub.
	moveCleanup move.Cleanup
}

// SetupWithManager registers the controller. Secrets and ConfigMaps are watched by their metadata only.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Live = mgr.GetClient(), mgr.GetCache(), mgr.GetAPIReader()
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.ssa = &ssa.Cache{Client: r.Client, FieldOwner: fieldOwner}
	r.moveCleanup = move.Cleanup{Client: r.Client, Live: r.Live}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("provisioningcluster").
		For(&provisioningv1.Cluster{}, builder.WithPredicates(r.moveCleanup.Predicate())).
		Owns(&clusterv1.Cluster{}).
		Owns(&rkev1.RKECluster{}).
		Owns(&rkev1.RKEControlPlane{}).
		Owns(&clusterv1.MachineDeployment{}).
		Owns(&clusterv1.MachineHealthCheck{}).
		Owns(&rkev1.RKEBootstrapTemplate{}).
		Watches(&clusterv1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(poolObjectToCluster), builder.WithPredicates(deletions)).
		Watches(&rkev1.ETCDSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.snapshotToCluster), builder.WithPredicates(snapshotChanged)).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&managementv3.ClusterRegistrationToken{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&managementv3.NodeDriver{}, handler.EnqueueRequestsFromMapFunc(r.nodeDriverToClusters)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(deletedMachineToCluster)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToClusters), builder.OnlyMetadata).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.definitionToClusters), builder.OnlyMetadata).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToClusters), builder.OnlyMetadata).
		WithOptions(r.Work.Pace(opts, paced(mgr.GetCache()), pace.EachComingUp)).
		Build(hubapierrors.Requeue(r))
	if err != nil {
		return err
	}
	r.tracker = &external.ObjectTracker{Controller: c, Cache: mgr.GetCache(), Scheme: mgr.GetScheme(),
		PredicateLogger: new(mgr.GetLogger())}
	return nil
}

// paced looks at Clusters as Cluster API's of the same name, of which they show the conditions.
func paced(cached client.Reader) pace.Look {
	look := pace.Clusters(cached)
	return func(key client.ObjectKey) (pace.Object, bool) {
		cluster := &provisioningv1.Cluster{}
		if err := cached.Get(context.Background(), key, cluster, client.UnsafeDisableDeepCopy); err != nil {
			return pace.Object{}, false
		}
		o, _ := look(key)
		o.Steady = o.Steady && cluster.DeletionTimestamp.IsZero() && cluster.Generation == cluster.Status.ObservedGeneration &&
			conditions.IsFalse(cluster, clusterv1.PausedCondition)
		o.Metadata = pace.Metadata(cluster)
		return o, true
	}
}

// watch watches a provider's kind, unless it is watched already.
func (r *Reconciler) watch(ctx context.Context, object client.Object) error {
	err := r.tracker.Watch(ctrl.LoggerFrom(ctx), object, handler.EnqueueRequestsFromMapFunc(r.providerObjectToClusters))
	if err != nil {
		return fmt.Errorf("watching %s: %w", object.GetObjectKind().GroupVersionKind().GroupKind(), err)
	}
	return nil
}

// Reconcile runs the phases, each whether or not another failed, and writes the status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	cluster := &provisioningv1.Cluster{}
	err := r.Client.Get(ctx, req.NamespacedName, cluster)
	if apierrors.IsNotFound(err) {
		r.ssa.Forget(req.NamespacedName)
		return ctrl.Result{}, r.moveCleanup.Run(ctx, req.NamespacedName, cluster)
	}
	if err != nil || move.IsMovedAway(cluster) {
		return ctrl.Result{}, err
	}
	if hasForeignName(cluster) {
		return ctrl.Result{}, objects.ReleaseFromRancher(ctx, r.Client, cluster, fieldOwner)
	}
	s := &scope{cluster: cluster}
	if !s.imported() {
		if err := r.readClusterAPI(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	pausing := s.capiCluster
	if !cluster.DeletionTimestamp.IsZero() {
		pausing = nil // a deletion waits for the Cluster API Cluster, and reports that
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, pausing, cluster); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, cluster, Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}

	s.patch = patch.NewHelper(r.Client, cluster, fieldOwner, ownedConditions...)
	defer func() {
		setStatus(s)
		if err := r.reportManagement(ctx, s); err != nil {
			reterr = kerrors.NewAggregate([]error{reterr, err})
		}
		reterr = kerrors.NewAggregate([]error{reterr, s.patch.Patch(ctx, cluster)})
	}()

	if !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.reconcileDelete(ctx, s)
	}
	if s.imported() {
		return ctrl.Result{}, r.reconcileImported(ctx, s)
	}
	return ctrl.Result{}, r.reconcileNormal(ctx, s)
}
