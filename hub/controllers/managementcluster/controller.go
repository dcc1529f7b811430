package managementcluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-dev/drover/hub/access/tunnelaccess"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// fieldOwner is the name that hubs have always applied management Clusters, namespaces and tokens with. Under another name, fields that are
// no longer wanted could not be removed from those that exist.
const fieldOwner = client.FieldOwner("drover-management")

// Reconciler reconciles management Clusters, and the RKEControlPlanes that need one.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Live reads past the cache, for deletions; SetupWithManager sets it.
	Live client.Reader
	// Secrets reads Secrets with the content of kubeconfigs; SetupWithManager sets it.
	Secrets client.Reader
	// Access knows which agents are connected, and reaches clusters through them. It is required.
	Access *tunnelaccess.Access
	// Registerer gets the metric of the agents that are connected; nil for none.
	Registerer prometheus.Registerer
	// Clock is the time; SetupWithManager sets it.
	Clock clock.PassiveClock

	history  history
	queue    queue
	watchers nodeWatchers
}

// SetupWithManager registers both controllers.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live, r.Secrets, r.Clock = mgr.GetClient(), mgr.GetAPIReader(), mgr.GetCache(), clock.RealClock{}
	if r.Registerer != nil {
		if err := r.Registerer.Register(newCollector(mgr.GetCache(), mgr.Elected())); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	if err := r.setup(mgr, opts); err != nil {
		return err
	}
	return (&controlPlaneReconciler{client: r.Client, live: r.Live}).setup(mgr, opts)
}

func (r *Reconciler) setup(mgr ctrl.Manager, opts controller.Options) error {
	metadataChanged := predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	deleted := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	r.Access.OnChange(r.queue.add)
	return ctrl.NewControllerManagedBy(mgr).
		Named("managementcluster").
		For(&managementv3.Cluster{}, builder.WithPredicates(predicate.Or(metadataChanged, deletionStarted))).
		Watches(&provisioningv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToManagement),
			builder.WithPredicates(predicate.Or(metadataChanged, predicate.GenerationChangedPredicate{}))).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(controlPlaneToManagement),
			builder.WithPredicates(predicate.Or(metadataChanged, ownership.Changed))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.secretToManagement)).
		Watches(&managementv3.Token{}, handler.EnqueueRequestsFromMapFunc(tokenToManagement), builder.WithPredicates(deleted)).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// deletionStarted lets an update through that sets the deletion timestamp.
var deletionStarted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
}}

// start is a source.Func: it gives the controller what agents change. A replica calls it long before it leads. ctx ends with the
// controller, and with it the watches of Nodes.
func (r *Reconciler) start(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	r.queue.set(q)
	r.watchers.start(ctx, r.Access.Config, r.queue.add)
	return nil
}

func clusterToManagement(_ context.Context, o client.Object) []ctrl.Request {
	return mapfuncs.Request(client.ObjectKey{Name: o.GetAnnotations()[rkev1.ManagementClusterNameAnnotation]})
}

func controlPlaneToManagement(_ context.Context, o client.Object) []ctrl.Request {
	controlPlane, ok := o.(*rkev1.RKEControlPlane)
	if !ok {
		return nil
	}
	return mapfuncs.Request(client.ObjectKey{Name: controlPlane.ManagementName()})
}

// secretToManagement maps the kubeconfig Secret of an imported cluster, which its Cluster owns.
func (r *Reconciler) secretToManagement(ctx context.Context, o client.Object) []ctrl.Request {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "Cluster" || owner.APIVersion != provisioningv1.GroupVersion.String() {
		return nil
	}
	cluster := &provisioningv1.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name}, cluster); err != nil {
		return nil
	}
	return clusterToManagement(ctx, cluster)
}

// tokenToManagement maps a Token of the hub's own, which the kubeconfig Secret of the management Cluster's cluster may hold.
func tokenToManagement(_ context.Context, o client.Object) []ctrl.Request {
	return mapfuncs.Request(client.ObjectKey{Name: tunnelaccess.ClusterOf(o)})
}

// queue is the controller's queue once it runs. What changed before is found when the controller lists all management Clusters.
type queue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

func (q *queue) set(to workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = to
}

// add enqueues the management Cluster of a session. Keys with a colon are of sessions of nodes.
func (q *queue) add(key string) {
	q.mu.Lock()
	to := q.queue
	q.mu.Unlock()
	if to != nil && !strings.Contains(key, ":") {
		to.Add(ctrl.Request{NamespacedName: client.ObjectKey{Name: key}})
	}
}
