package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

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

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/pause"
)

const controllerName = "drain"

const fieldOwner = client.FieldOwner("drover-drain")

// Reconciler reconciles plan Secrets that ask for a drain.
type Reconciler struct {
	// Client writes plan Secrets. The manager's, where unset.
	Client client.Client
	// Cache reads plan Secrets. The manager's, where unset.
	Cache client.Reader
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache
	// Now is the clock; time.Now where unset.
	Now func() time.Time
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.ClusterCache == nil {
		return errors.New("setting up the drain controller: it has no ClusterCache")
	}
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&corev1.Secret{}, builder.WithPredicates(drainChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToSecret), builder.WithPredicates(goesOrGoesOn)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToSecrets), builder.WithPredicates(pause.Ends)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToSecrets)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the drain controller: %w", err)
	}
	return nil
}

// drainChanged lets through plan Secrets that are concerned with a drain, and of their changes only those of annotations: agents write
// their reports all the time.
var drainChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return asks(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return asks(e.ObjectNew) && !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// asks tells of a plan Secret that asks for a drain, and of one whose Node was cordoned for a drain that nobody asks for any more.
func asks(object client.Object) bool {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Type != rkev1.MachinePlanSecretType {
		return false
	}
	a := secret.Annotations
	return a[rkev1.DrainOptionsAnnotation] != "" || a[rkev1.DrainCordonedAnnotation] != ""
}

// goesOrGoesOn lets through the moment in which a Machine is deleted, or no longer paused.
var goesOrGoesOn = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.Object.GetDeletionTimestamp().IsZero() },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero() || pause.Ends.Update(e)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func machineToSecret(_ context.Context, object client.Object) []ctrl.Request {
	machine, ok := object.(*clusterv1.Machine)
	if !ok {
		return nil
	}
	ref := machine.Spec.Bootstrap.ConfigRef
	if ref.APIGroup != rkev1.GroupVersion.Group || ref.Kind != "RKEBootstrap" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: machine.Namespace, Name: rkev1.PlanSecretName(ref.Name)}}}
}

// clusterToSecrets maps a Cluster to its machines that are drained, which wait for its connection or for its pause to end.
func (r *Reconciler) clusterToSecrets(ctx context.Context, cluster client.Object) []ctrl.Request {
	var secrets corev1.SecretList
	err := r.Cache.List(ctx, &secrets, client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{rkev1.ClusterNameLabel: cluster.GetName()},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the plan Secrets of a cluster", "Cluster", client.ObjectKeyFromObject(cluster))
		return nil
	}
	var requests []ctrl.Request
	for i := range secrets.Items {
		if asks(&secrets.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&secrets.Items[i])})
		}
	}
	return requests
}

// Reconcile does what can be done now of one drain, and writes what came of it once.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	secret := &corev1.Secret{}
	if err := r.Cache.Get(ctx, req.NamespacedName, secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !secret.DeletionTimestamp.IsZero() || !asks(secret) {
		return ctrl.Result{}, nil
	}
	s := &scope{secret: secret, notes: readNotes(secret)}
	if err := r.readOwners(ctx, s); err != nil || s.paused {
		return ctrl.Result{}, err
	}
	err := r.step(ctx, s)
	return ctrl.Result{RequeueAfter: s.requeueAfter}, errors.Join(err, r.write(ctx, s))
}
