// Package nodedrain drains the Node of a machine before a change, and uncordons it afterwards. Both are requested by annotations of the
// machine's plan Secret; the controller answers with others, and calls hooks in between:
//
//	rke.cattle.io/drain-options   the request: rkev1.DrainOptions as JSON, written by rkecontrolplane
//	rke.cattle.io/pre-drain       the same value, once the pre-drain hooks are called; each answers with that value in its own annotation
//	rke.cattle.io/drain-done      the same value, once the Node is drained
//	rke.cattle.io/drain-error     why the drain is stuck
//	rke.cattle.io/drain-waiting   what the drain waits for in its normal course
//	rke.cattle.io/drain-began     JSON of the request and the time of its first eviction, by which the timeout outlives the hub
//	rke.cattle.io/drain-cordoned  "true" where this controller has cordoned the Node
//	rke.cattle.io/uncordon        the same value as the request, once its end is requested, written by rkecontrolplane
//	rke.cattle.io/post-drain      the same value, once the post-drain hooks are called
//
// All of them are removed at the end. When a machine is drained is decided by hub/plan/rollout. Evictions are requests to other clusters,
// and may take long: this is a controller of its own beside plansecret so that reports of agents need not wait for them.
package nodedrain

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
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
	"github.com/drover-dev/drover/hub/util/paused"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

const (
	controllerName = "nodedrain"
	fieldOwner     = client.FieldOwner("drover-" + controllerName)
)

// Reconciler reconciles plan Secrets that request a drain.
type Reconciler struct {
	// Client reads Clusters and RKEControlPlanes, and writes plan Secrets.
	Client client.Client
	// Cache reads plan Secrets.
	Cache client.Reader
	// ClusterCache holds the connections to the clusters; required.
	ClusterCache clustercache.ClusterCache
	// Now is the clock.
	Now func() time.Time
}

// SetupWithManager registers the controller, with the clients of the manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Cache, r.Now = mgr.GetClient(), mgr.GetCache(), time.Now
	toSecrets := plansecrets.ClusterToPlanSecrets(r.Cache, hasDrain)
	return ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&corev1.Secret{}, builder.WithPredicates(drainChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToSecret), builder.WithPredicates(deletedOrUnpaused)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(toSecrets), builder.WithPredicates(paused.Unpaused)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(plansecrets.ControlPlaneToPlanSecrets(r.Cache, hasDrain)),
			builder.WithPredicates(paused.Unpaused)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, toSecrets)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// drainChanged passes plan Secrets with a drain, and updates of them that change annotations: agents update the data all the time.
var drainChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return hasDrain(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return hasDrain(e.ObjectNew) && !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// hasDrain matches a plan Secret that requests a drain, or whose Node is still cordoned for a drain that was withdrawn.
func hasDrain(object client.Object) bool {
	a := object.GetAnnotations()
	return plansecrets.IsPlanSecret(object) && (a[rkev1.DrainOptionsAnnotation] != "" || a[rkev1.DrainCordonedAnnotation] != "")
}

// deletedOrUnpaused passes a Machine whose deletion begins, or that is no longer paused.
var deletedOrUnpaused = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.Object.GetDeletionTimestamp().IsZero() },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero() || paused.Unpaused.Update(e)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// machineToSecret maps a Machine to its plan Secret.
func machineToSecret(ctx context.Context, machine client.Object) []ctrl.Request {
	requests := mapfuncs.MachineToBootstrap(ctx, machine)
	for i := range requests {
		requests[i].Name = rkev1.PlanSecretName(requests[i].Name)
	}
	return requests
}

// Reconcile does what can be done of one drain without waiting, and writes the annotations once.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := r.Cache.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !secret.DeletionTimestamp.IsZero() || !hasDrain(secret) {
		return ctrl.Result{}, nil
	}
	s := &scope{secret: secret, state: readState(secret)}
	_, machine, cluster, err := plansecrets.Owners(ctx, r.Client, secret)
	if err != nil || cluster != nil && ptr.Deref(cluster.Spec.Paused, false) {
		return ctrl.Result{}, err
	}
	if cluster != nil {
		if isPaused, err := plansecrets.ControlPlanePaused(ctx, r.Client, cluster); err != nil || isPaused {
			return ctrl.Result{}, err
		}
	}
	if cluster != nil && annotations.HasPaused(machine) {
		// Plans are rendered for a paused Machine, too, and other machines wait for it.
		s.state.problem, s.state.waiting = "", "the Machine is paused; remove its annotation "+clusterv1.PausedAnnotation+" to continue"
		return ctrl.Result{}, r.writeState(ctx, s)
	}
	if cluster != nil {
		s.machine, s.cluster = machine, client.ObjectKeyFromObject(cluster)
	}
	r.reconcile(ctx, s)
	return ctrl.Result{RequeueAfter: s.requeueAfter}, r.writeState(ctx, s)
}
