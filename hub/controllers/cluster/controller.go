package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/apply"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/management"
	"github.com/drover-dev/drover/hub/controllers/patch"
)

const (
	// Finalizer holds a Cluster until everything that was made for it is gone.
	Finalizer = "provisioning.cattle.io/drover"

	fieldOwner = client.FieldOwner("drover-cluster")
)

// Reconciler reconciles Clusters of provisioning.cattle.io: those with an rkeConfig, which the hub makes, and those without one, which were
// made elsewhere and are imported.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache; a deletion asks it whether things are gone. It is set from the manager where it is nil.
	Live client.Reader

	// keeper writes what is wanted of objects, and asks nothing where that is there.
	keeper *apply.Keeper
	// tracker watches kinds of providers from the first time on that a Cluster refers to them.
	tracker *external.ObjectTracker
	// departures are the Clusters that leave for another hub.
	departures management.Departures
}

// SetupWithManager registers the controller. Secrets and ConfigMaps are watched by their metadata only.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.keeper = &apply.Keeper{Client: r.Client, Owner: fieldOwner}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named("provisioningcluster").
		For(&provisioningv1.Cluster{}, builder.WithPredicates(r.departures.Note())).
		Owns(&clusterv1.Cluster{}).
		Owns(&rkev1.RKECluster{}).
		Owns(&rkev1.RKEControlPlane{}).
		Owns(&clusterv1.MachineDeployment{}).
		Owns(&clusterv1.MachineHealthCheck{}).
		Owns(&rkev1.RKEBootstrapTemplate{}).
		Watches(&clusterv1.MachineSet{}, handler.EnqueueRequestsFromMapFunc(poolObjectToCluster), builder.WithPredicates(deletions)).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&managementv3.ClusterRegistrationToken{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ownerFromLabels)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(deletedMachineToCluster)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToClusters), builder.OnlyMetadata).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.definitionToClusters), builder.OnlyMetadata).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToClusters), builder.OnlyMetadata).
		WithOptions(opts).
		Build(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the cluster controller: %w", err)
	}
	r.tracker = &external.ObjectTracker{Controller: c, Cache: mgr.GetCache(), Scheme: mgr.GetScheme(), PredicateLogger: ptr.To(mgr.GetLogger())}
	return nil
}

// watch watches a provider's kind, if that is not done yet.
func (r *Reconciler) watch(ctx context.Context, object client.Object) error {
	err := r.tracker.Watch(ctrl.LoggerFrom(ctx), object, handler.EnqueueRequestsFromMapFunc(r.providerObjectToClusters))
	if err != nil {
		return fmt.Errorf("watching %s: %w", object.GetObjectKind().GroupVersionKind().GroupKind(), err)
	}
	return nil
}

// Reconcile runs every phase, adds their errors up, and writes the status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	cluster := &provisioningv1.Cluster{}
	err := r.Client.Get(ctx, req.NamespacedName, cluster)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.departures.RemoveLeftovers(ctx, r.Client, r.Live, req.NamespacedName, &provisioningv1.Cluster{})
	}
	if err != nil || management.IsMovedAway(cluster) {
		return ctrl.Result{}, err
	}
	s := &scope{cluster: cluster}
	if !s.imported() {
		if err := r.readClusterAPI(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	pausing := s.capiCluster
	if !cluster.DeletionTimestamp.IsZero() {
		pausing = nil // a deletion waits for the Cluster API Cluster by itself, and says so
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
