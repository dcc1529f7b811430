package custommachine

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/predicates"
)

const (
	controllerName = "custommachine"
	fieldOwner     = client.FieldOwner("drover-custommachine")
)

// Reconciler reconciles CustomMachines.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// ClusterCache holds the connections to the clusters. It is required.
	ClusterCache clustercache.ClusterCache
	// Now is the clock; SetupWithManager sets it.
	Now func() time.Time

	controller controller.Controller
}

// SetupWithManager registers the controller. Nodes are watched per cluster, as soon as the cluster is connected.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Now = mgr.GetClient(), time.Now
	err := mgr.GetFieldIndexer().IndexField(ctx, &rkev1.CustomMachine{}, indexMachineUID, machineUIDs)
	if err != nil {
		return err
	}
	clusterToCustomMachines := handler.EnqueueRequestsFromMapFunc(r.clusterToCustomMachines)
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.CustomMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToCustomMachine)).
		Watches(&clusterv1.Cluster{}, clusterToCustomMachines, builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&rkev1.RKECluster{}, clusterToCustomMachines, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToCustomMachines)).
		WithOptions(opts).
		Build(apierrors.Requeue(r))
	return err
}
