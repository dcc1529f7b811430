package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/controllers/predicates"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/release"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/hub/signing"
	"github.com/drover-dev/drover/hub/tunnelaccess"
)

// Finalizer holds an RKEControlPlane until the cluster has no control plane Machine any more.
const Finalizer = "rke.cattle.io/rkecontrolplane"

// controllerName is the controller's name in logs, metrics and watches.
const controllerName = "controlplane"

// fieldOwner names this controller as the writer of fields.
const fieldOwner = client.FieldOwner("drover-controlplane")

// Reconciler reconciles RKEControlPlanes.
type Reconciler struct {
	// Client reads what is rarely read, such as Secrets that a cluster refers to. The manager's, where unset.
	Client client.Client
	// Cache reads what every pass needs, among it plan Secrets with their content. The manager's, where unset.
	Cache client.Reader
	// Live reads from the API server, past all caches, where an old view would do harm. The manager's, where unset.
	Live client.Reader
	// Settings are the hub's.
	Settings settings.Settings
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache
	// Access is the way through the agents' tunnels; nil where there is none.
	Access *tunnelaccess.Access
	// Reconnect has ClusterCache connect to a cluster anew, without blocking; nil where it does so by itself.
	Reconnect func(cluster client.ObjectKey)
	// Signer signs plans. Where it is unset, plans are not signed.
	Signer *signing.Signer
	// Tokens make the registration token of the cluster-agent. Where it is unset, plans hold no agent but the one that was there.
	Tokens Tokens
	// Releases tells what each release accepts. Where it is unset, that is what this program was built with.
	Releases *release.Catalog
	// Now is the clock; time.Now where unset.
	Now func() time.Time

	controller controller.Controller
	contents   contents
	lookout    *lookout
	arrivals   *arrivals
	// asked is, by Cluster, for the opening of which way a reconnect was asked for.
	asked sync.Map
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
	if r.Now == nil {
		r.Now = time.Now
	}
	r.lookout = newLookout(r.Access, r.Now)
	r.arrivals = &arrivals{connected: r.Access.Connected, reader: r.Cache, now: r.Now, since: map[string]time.Time{}}
	r.Access.OnChange(r.arrivals.changed)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.RKEControlPlane{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToControlPlane), builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.managementToControlPlane), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&rkev1.RKECluster{}, handler.EnqueueRequestsFromMapFunc(r.byCluster(clusterv1.ClusterNameLabel)), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.Machine{}, coalesced(r.byCluster(clusterv1.ClusterNameLabel))).
		Watches(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(r.byCluster(clusterv1.ClusterNameLabel)),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&rkev1.RKEBootstrap{}, coalesced(r.byCluster(clusterv1.ClusterNameLabel))).
		Watches(&corev1.Secret{}, coalesced(r.secretToControlPlanes)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToControlPlanes), builder.OnlyMetadata).
		WatchesRawSource(r.releaseData()).
		WatchesRawSource(source.Func(r.arrivals.start)).
		WatchesRawSource(source.Channel(r.lookout.done, &handler.EnqueueRequestForObject{})).
		WithOptions(opts)
	if r.ClusterCache != nil {
		b = b.WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, clusterToControlPlane, clustercache.WatchForProbeFailure(unansweredAfter)))
	}
	var err error
	if r.controller, err = b.Build(failure.Requeue(r)); err != nil {
		return fmt.Errorf("setting up the controlplane controller: %w", err)
	}
	return nil
}

// Reconcile runs one pass and writes the status once at its end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	controlPlane := &rkev1.RKEControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{controlPlane: controlPlane}
	var err error
	if s.cluster, s.refused, err = ownership.Cluster(ctx, r.Client, controlPlane); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, controlPlane); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, controlPlane, Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, controlPlane, fieldOwner, ownedConditions...)
	if !controlPlane.DeletionTimestamp.IsZero() {
		err = r.reconcileDelete(ctx, s)
	} else {
		err = r.reconcileNormal(ctx, s)
	}
	result := ctrl.Result{RequeueAfter: s.requeueAfter}
	switch {
	case failure.IsRace(err):
		// Nothing for users to see.
		ctrl.LoggerFrom(ctx).V(1).Info("Trying again after a conflict", "error", err.Error())
		err, result.RequeueAfter = nil, failure.RaceDelay
	case failure.IsEnding(err):
		// The RKEControlPlane goes with its namespace, and that is when there is something to do.
		ctrl.LoggerFrom(ctx).V(1).Info("Waiting for the namespace to be deleted", "error", err.Error())
		err = nil
	}
	setStatus(s, err)
	patchErr := helper.Patch(ctx, controlPlane)
	if failure.IsRace(patchErr) {
		patchErr, result.RequeueAfter = nil, failure.RaceDelay
	}
	if err := kerrors.NewAggregate([]error{err, patchErr}); err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}
