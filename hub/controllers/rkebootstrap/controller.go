package rkebootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server/settings"
	apierrors "github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/inprogress"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/paused"
	"github.com/drover-dev/drover/hub/util/predicates"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// fieldOwner is the name that hubs have always applied objects with. Under another name, fields that are no longer wanted could not be
// removed.
const fieldOwner = client.FieldOwner("drover-bootstrap")

// Reconciler reconciles RKEBootstraps. Everything that it creates is owned by the RKEBootstrap and deleted with it.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Cache reads plan Secrets with their content, and the metadata of all Secrets and ServiceAccounts. Live reads past all caches.
	// SetupWithManager sets both.
	Cache, Live client.Reader
	// Settings have the URL and the authorities of the hub for the install script.
	Settings settings.Settings
	// Now is the clock. SetupWithManager sets it.
	Now func() time.Time

	ssa *ssa.Cache
	// waiting counts the RKEBootstraps that wait for a moment, of which their status says nothing yet.
	waiting inprogress.Counter
	// tokens are bootstrap tokens by the UID of their RKEBootstrap, and packed are bootstrap data by the digest of what they are made from.
	tokens, packed *lru.Cache
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Live, r.Now = mgr.GetClient(), mgr.GetCache(), mgr.GetAPIReader(), time.Now
	r.ssa = &ssa.Cache{Client: r.Client, FieldOwner: fieldOwner, Metadata: r.Cache}
	r.tokens, r.packed = lru.New(keptTokens), lru.New(keptData)
	clusterToBootstraps, err := util.ClusterToTypedObjectsMapper(r.Client, &rkev1.RKEBootstrapList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to RKEBootstraps: %w", err)
	}
	owned := builder.WithPredicates(metadataChanged)
	return ctrl.NewControllerManagedBy(mgr).
		Named("rkebootstrap").
		For(&rkev1.RKEBootstrap{}, builder.WithPredicates(bootstrapChanged)).
		// Secrets by their label: tokens have another owner.
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(rkev1.BootstrapNameLabel)), builder.OnlyMetadata, owned).
		Owns(&corev1.ServiceAccount{}, builder.OnlyMetadata, owned).
		Owns(&rbacv1.Role{}, builder.OnlyMetadata).
		Owns(&rbacv1.RoleBinding{}, builder.OnlyMetadata).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.MachineToBootstrap), builder.WithPredicates(machineChanged)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToBootstraps), builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToBootstraps),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ownership.Changed))).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// Reconcile runs the phases, each whether or not another failed, and writes the status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	bootstrap := &rkev1.RKEBootstrap{}
	found, err := objects.Get(ctx, r.Client, req.NamespacedName, bootstrap)
	hidden := false
	defer func() { r.waiting.Set(req.NamespacedName, hidden) }()
	if err == nil && !found {
		r.ssa.Forget(req.NamespacedName)
	}
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !bootstrap.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, objects.ReleaseFromRancher(ctx, r.Client, bootstrap, fieldOwner)
	}
	s := &scope{bootstrap: bootstrap}
	if err := r.readOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, bootstrap, fieldOwner, ownedConditions...)
	if isPaused, changed, err := paused.EnsureCondition(ctx, r.Client, s.cluster, bootstrap); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	err = r.reconcileNormal(ctx, s)
	others := r.waiting.Others(req.NamespacedName)
	if s.data == nil {
		others = 0 // nothing but the status says that the infrastructure provider can begin
	}
	if wait := s.untilWaitsShown(waitsShownAfter(others), r.Now()); err == nil && wait > 0 {
		hidden = true
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	setStatus(s)
	return ctrl.Result{}, kerrors.NewAggregate([]error{err, helper.Patch(ctx, bootstrap)})
}
