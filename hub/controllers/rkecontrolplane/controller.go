package rkecontrolplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/finalizers"
	"sigs.k8s.io/cluster-api/util/paused"

	"github.com/drover-dev/drover/hub/access/endpoint"
	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/signing"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objectcache"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// Finalizer holds an RKEControlPlane until the cluster has no control plane Machine left.
const Finalizer = "rke.cattle.io/rkecontrolplane"

const (
	controllerName = "rkecontrolplane"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
)

// Reconciler reconciles RKEControlPlanes.
type Reconciler struct {
	// Client writes, and reads what is rarely read, such as Secrets that a cluster refers to.
	Client client.Client
	// Cache reads what every reconcile needs, among it plan Secrets with their data.
	Cache client.Reader
	// Live reads from the API server, where outdated objects would do harm.
	Live client.Reader
	// Settings are the hub's.
	Settings settings.Settings
	// ClusterCache holds the connections to the clusters. Without it, Nodes are unknown.
	ClusterCache clustercache.ClusterCache
	// Access reaches clusters through the tunnels of their agents; nil where there are none.
	Access *tunnelaccess.Access
	// Reconnect makes ClusterCache connect to a cluster again, without blocking; nil if it cannot.
	Reconnect func(cluster client.ObjectKey)
	// Signer signs plans; nil leaves them unsigned.
	Signer *signing.Signer
	// Tokens makes the registration token of the cluster-agent. If nil, the manifest of the cluster-agent in plans stays as it is.
	Tokens Tokens
	// Releases has what each release accepts; nil for what is built in.
	Releases *release.Catalog
	// Registerer gets the metrics; nil for none.
	Registerer prometheus.Registerer
	// Operations counts operations that end; nil for none.
	Operations *operations.Metrics
	// Now is the clock.
	Now func() time.Time

	// started is when this hub began to reconcile, which begin sets: reports of agents may be missing from before.
	begin   sync.Once
	started time.Time

	controller controller.Controller
	// manager is Cache, if that is the manager's, which has indexes and may be behind the API server. It is nil in a preview, which reads
	// from the API server.
	manager cache.Cache
	// known reports whether Cache has what an earlier hub knew.
	known     knownMachines
	objects   objectcache.Cache
	endpoints endpoint.Chooser
	agents    *agentSessions
	plans     planCache
	backlog   backlog
	// reconnected is, by Cluster (client.ObjectKey), for which time.Time of its endpoint a reconnect was requested.
	reconnected sync.Map
}

// SetupWithManager registers the controller, with the clients of the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.manager = mgr.GetCache()
	r.Client, r.Cache, r.Live, r.Now = mgr.GetClient(), mgr.GetCache(), mgr.GetAPIReader(), time.Now
	r.endpoints = endpoint.Chooser{Now: r.Now, Prober: endpoint.NewProber(endpoint.Requests(r.Access), r.Now)}
	r.agents = &agentSessions{connected: r.Access.Connected, reader: r.Cache, now: r.Now, since: map[string]time.Time{}}
	r.Access.OnChange(r.agents.changed)
	if r.Registerer != nil {
		if err := r.Registerer.Register(newCollector(r.Cache, mgr.Elected())); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	ofCluster := handler.EnqueueRequestsFromMapFunc(r.labelToControlPlane)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.RKEControlPlane{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ClusterToControlPlane),
			builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&managementv3.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.managementToControlPlane),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&rkev1.RKECluster{}, ofCluster, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.MachineDeployment{}, ofCluster, builder.WithPredicates(deploymentChanged)).
		Watches(&clusterv1.Machine{}, mapfuncs.Coalesced(coalesceTime, r.labelToControlPlane)).
		Watches(&rkev1.RKEBootstrap{}, mapfuncs.Coalesced(coalesceTime, r.labelToControlPlane)).
		Watches(&corev1.Secret{}, mapfuncs.Coalesced(coalesceTime, r.secretToControlPlanes),
			builder.WithPredicates(r.objects.ForgetSecrets())).
		Watches(&rkev1.ETCDSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.snapshotToControlPlane), builder.WithPredicates(snapshotFound)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.configMapToControlPlanes), builder.OnlyMetadata,
			builder.WithPredicates(r.objects.ForgetConfigMaps())).
		WatchesRawSource(r.releaseData()).
		WatchesRawSource(source.Func(r.agents.start)).
		WatchesRawSource(source.Channel(r.endpoints.Prober.Done, &handler.EnqueueRequestForObject{})).
		WithOptions(opts)
	for _, kind := range operationv1.Kinds() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.operationToControlPlane),
			builder.WithPredicates(predicate.GenerationChangedPredicate{}))
	}
	if r.ClusterCache != nil {
		b = b.WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, mapfuncs.ClusterToControlPlane,
			clustercache.WatchForProbeFailure(endpoint.UnreachableAfter)))
	}
	var err error
	r.controller, err = b.Build(apierrors.Requeue(r))
	return err
}

// Reconcile reconciles one RKEControlPlane, and writes its status once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	r.begin.Do(func() { r.started = r.Now() })
	controlPlane := &rkev1.RKEControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, controlPlane); err != nil {
		err = client.IgnoreNotFound(err)
		if err == nil {
			r.plans.forget(req.NamespacedName)
			r.known.forget(req.NamespacedName)
			r.backlog.set(req.NamespacedName, work{}, r.Now())
		}
		return ctrl.Result{}, err
	}
	s := &scope{controlPlane: controlPlane, now: r.Now(), plans: r.plans.of(req.NamespacedName)}
	if wait := s.plans.nextReconcile.Sub(s.now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	defer func() {
		s.plans.ended(reterr, r.Now(), max(s.rest, s.backlog.rest(len(s.machines))))
		r.backlog.set(req.NamespacedName, s.work, r.Now()) // nothing where it has not come to the machines
	}()
	var err error
	if s.cluster, s.refused, err = ownership.Cluster(ctx, r.Client, controlPlane); err != nil {
		return ctrl.Result{}, err
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, s.cluster, controlPlane); err != nil || isPaused || changed {
		if err == nil && isPaused {
			err = kerrors.NewAggregate([]error{r.suspendOperations(ctx, s), r.protectPaused(ctx, s)})
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: s.requeueAfter}, nil
	}
	if s.cluster != nil {
		r.known.seen(req.NamespacedName, s.cluster)
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, controlPlane, Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	before := controlPlane.Status.DeepCopy()
	s.patch = patch.NewHelper(r.Client, controlPlane, fieldOwner, ownedConditions...)
	if !controlPlane.DeletionTimestamp.IsZero() {
		err = r.reconcileDelete(ctx, s)
	} else {
		err = r.reconcileNormal(ctx, s)
	}
	// A conflict and a namespace that is being deleted are no failures: the conditions do not mention them.
	shown := err
	if apierrors.IsRace(err) || apierrors.IsEnding(err) {
		shown = nil
	}
	setStatus(s, shown)
	s.holdProgress(before, r.Now())
	if err := kerrors.NewAggregate([]error{err, s.patch.Patch(ctx, controlPlane)}); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.requeueAfter}, nil
}
