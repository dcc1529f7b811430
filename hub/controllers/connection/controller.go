package connection

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/settings"
)

const fieldOwner = client.FieldOwner("drover-connection")

// Presence tells which sessions of agents there are, on whichever replica of the hub. The key of a cluster's agents is the name of the
// management Cluster.
type Presence interface {
	Connected(key string) bool
	// OnChange registers what is called when the first session of a key has come or its last has gone. It must not block.
	OnChange(changed func(key string))
}

// Reconciler reconciles the connection of management Clusters.
type Reconciler struct {
	Client   client.Client
	Presence Presence
	Settings settings.Settings
	// Clock is the time; nil means the real one.
	Clock clock.PassiveClock

	history history
	queue   queue
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	r.Presence.OnChange(r.queue.add)
	labels := builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("connection").
		For(&managementv3.Cluster{}, labels).
		Watches(&provisioningv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(annotatedName), labels).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.controlPlaneToManagement),
			builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, ownership.Changed))).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the connection controller: %w", err)
	}
	return nil
}

// start begins the time in which agents that have lost this hub, or the replica that worked before it, come back.
func (r *Reconciler) start(_ context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	r.history.start(r.Clock.Now())
	r.queue.set(q)
	return nil
}

// annotatedName maps a Cluster to its management Cluster.
func annotatedName(_ context.Context, o client.Object) []ctrl.Request {
	return request(o.GetAnnotations()[rkev1.ManagementClusterNameAnnotation])
}

func (r *Reconciler) controlPlaneToManagement(_ context.Context, o client.Object) []ctrl.Request {
	controlPlane, ok := o.(*rkev1.RKEControlPlane)
	if !ok {
		return nil
	}
	return request(controlPlane.ManagementName())
}

func request(name string) []ctrl.Request {
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// queue is the controller's, once it runs. What changes before that is found out when it lists the clusters.
type queue struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

func (q *queue) set(to workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = to
}

// add asks for a pass over the cluster of a session. Sessions of nodes have keys with a colon, and tell nothing about their cluster.
func (q *queue) add(key string) {
	q.mu.Lock()
	to := q.queue
	q.mu.Unlock()
	if to != nil && !strings.Contains(key, ":") {
		to.Add(ctrl.Request{NamespacedName: client.ObjectKey{Name: key}})
	}
}
