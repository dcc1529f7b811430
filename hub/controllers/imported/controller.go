package imported

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/ownership"
)

const fieldOwner = client.FieldOwner("drover-imported")

// Reconciler reconciles the management Clusters of imported clusters.
type Reconciler struct {
	Client client.Client
	// Reach tells how the API of a management Cluster is reached through its agent.
	Reach func(management string) *rest.Config

	watchers watchers
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("imported").
		For(&managementv3.Cluster{}, builder.WithPredicates(connectionChanged)).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the imported controller: %w", err)
	}
	return nil
}

// connectionChanged lets only through what matters here: whether there is a cluster, and whether it is connected.
var connectionChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*managementv3.Cluster)
	after, is := e.ObjectNew.(*managementv3.Cluster)
	return !ok || !is || connected(before) != connected(after) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!reflect.DeepEqual(before.Labels, after.Labels)
}}

func connected(c *managementv3.Cluster) bool {
	return conditions.IsTrue(c, managementv3.ConnectedCondition)
}

// start makes watches live as long as the controller.
func (r *Reconciler) start(ctx context.Context, q workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	r.watchers.start(ctx, r.Reach, func(name string) { q.Add(ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}) })
	return nil
}

// Reconcile watches a cluster while it is connected, and writes what is seen.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	management := &managementv3.Cluster{}
	err := r.Client.Get(ctx, req.NamespacedName, management)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the management Cluster: %w", err)
	}
	watch := err == nil && management.DeletionTimestamp.IsZero() && connected(management)
	if watch {
		if watch, err = r.isImported(ctx, management); err != nil {
			return ctrl.Result{}, err
		}
	}
	if !watch {
		r.watchers.end(req.Name)
		return ctrl.Result{}, nil
	}
	seen := r.watchers.of(req.Name)
	if seen.version == nil {
		return ctrl.Result{}, nil // comes again when something was seen
	}
	return ctrl.Result{}, r.write(ctx, management, seen)
}

// isImported tells whether the management Cluster was made for a Cluster without rkeConfig.
func (r *Reconciler) isImported(ctx context.Context, management *managementv3.Cluster) (bool, error) {
	cluster, err := ownership.ClusterOf(ctx, r.Client, management)
	return cluster != nil && cluster.Imported(), err
}

func (r *Reconciler) write(ctx context.Context, management *managementv3.Cluster, seen facts) error {
	helper := patch.NewHelper(r.Client, management, fieldOwner)
	management.Status.Version = seen.version
	if seen.counted {
		management.Status.NodeCount = seen.nodes
	}
	return helper.Patch(ctx, management)
}
