package bootstrap

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/paused"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/apply"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/controllers/predicates"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/settings"
)

const fieldOwner = client.FieldOwner("drover-bootstrap")

// Reconciler reconciles RKEBootstraps. What it makes is owned by the RKEBootstrap and goes with it.
type Reconciler struct {
	Client client.Client
	// Cache reads plan Secrets with their content, and of all Secrets and ServiceAccounts the metadata. Live reads past all caches. The manager's,
	// where unset.
	Cache, Live client.Reader
	// Settings tell machines where the hub is.
	Settings settings.Settings

	keeper *apply.Keeper
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	if r.Live == nil {
		r.Live = mgr.GetAPIReader()
	}
	r.keeper = &apply.Keeper{Client: r.Client, Owner: fieldOwner, Metadata: r.Cache}
	clusterToBootstraps, err := util.ClusterToTypedObjectsMapper(r.Client, &rkev1.RKEBootstrapList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to RKEBootstraps: %w", err)
	}
	owned := builder.WithPredicates(metadataChanged)
	err = ctrl.NewControllerManagedBy(mgr).
		Named("bootstrap").
		For(&rkev1.RKEBootstrap{}, builder.WithPredicates(bootstrapChanged)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(secretToBootstrap), builder.OnlyMetadata, owned).
		Owns(&corev1.ServiceAccount{}, builder.OnlyMetadata, owned).
		Owns(&rbacv1.Role{}, builder.OnlyMetadata, owned).
		Owns(&rbacv1.RoleBinding{}, builder.OnlyMetadata, owned).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToBootstrap), builder.WithPredicates(machineChanged)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToBootstraps), builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToBootstraps),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ownership.Changed))).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the bootstrap controller: %w", err)
	}
	return nil
}

// Reconcile runs every phase, adds their errors up, and writes the status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	bootstrap := &rkev1.RKEBootstrap{}
	if err := r.Client.Get(ctx, req.NamespacedName, bootstrap); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, r.forget(req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if !bootstrap.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &scope{bootstrap: bootstrap}
	if err := r.readOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, bootstrap); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, bootstrap, fieldOwner, ownedConditions...)
	defer func() {
		setStatus(s)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, bootstrap)})
	}()
	return ctrl.Result{}, r.reconcileNormal(ctx, s)
}
