package operation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/operations"
)

const fieldOwner = client.FieldOwner("drover-operation")

// Reconciler reconciles the operations of all kinds.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// Operations counts operations that end; nil for none.
	Operations *operations.Metrics
	// Now is the clock; SetupWithManager sets it.
	Now func() time.Time

	// started is when this hub began to reconcile operations, which begin sets: it may not have followed them before.
	begin   sync.Once
	started time.Time
}

// SetupWithManager registers a controller for each kind.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Now = mgr.GetClient(), time.Now
	for _, kind := range operationv1.Kinds() {
		// Only the specification of a Cluster decides who carries its operations out.
		changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
		toOperations := handler.EnqueueRequestsFromMapFunc(r.ofCluster(kind))
		err := ctrl.NewControllerManagedBy(mgr).
			Named("operation-"+strings.ToLower(operationv1.Kind(kind))).
			For(kind, changed).
			Watches(&clusterv1.Cluster{}, toOperations, changed).
			Watches(&provisioningv1.Cluster{}, toOperations, changed).
			Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(r.ofControlPlane(kind)), builder.WithPredicates(deleted)).
			WithOptions(opts).
			Complete(apierrors.Requeue(r.of(kind)))
		if err != nil {
			return fmt.Errorf("registering the controller of %s: %w", operationv1.Kind(kind), err)
		}
	}
	return nil
}

// deleted passes objects that are gone. A controller of RKEControlPlanes that exist sees to their operations.
var deleted = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// ofControlPlane maps an RKEControlPlane to the operations of a kind of its Cluster.
func (r *Reconciler) ofControlPlane(kind operationv1.Operation) handler.MapFunc {
	return func(ctx context.Context, controlPlane client.Object) []ctrl.Request {
		return r.ofName(ctx, kind, controlPlane.GetNamespace(), controlPlane.GetLabels()[clusterv1.ClusterNameLabel])
	}
}

// ofCluster maps a Cluster of either group to its operations of a kind.
func (r *Reconciler) ofCluster(kind operationv1.Operation) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) []ctrl.Request {
		return r.ofName(ctx, kind, cluster.GetNamespace(), cluster.GetName())
	}
}

// ofName returns requests for the operations of a kind that are for the Cluster of a name.
func (r *Reconciler) ofName(ctx context.Context, kind operationv1.Operation, namespace, cluster string) (requests []ctrl.Request) {
	list := operationv1.ListOf(kind)
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list operations", "kind", operationv1.Kind(kind))
		return nil
	}
	for _, op := range operations.Items(list) {
		if op.CommonSpec().ClusterRef.Name == cluster {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(op)})
		}
	}
	return requests
}
