package missingnode

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/drover-dev/drover/hub/controllers/failure"
)

const controllerName = "missingnode"

// Reconciler looks after the Machines of CustomMachines.
type Reconciler struct {
	// Client is the manager's, where unset.
	Client client.Client
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache
	// Now is the clock; time.Now where unset.
	Now func() time.Time
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.ClusterCache == nil {
		return errors.New("setting up the missingnode controller: it has no ClusterCache")
	}
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&clusterv1.Machine{}, builder.WithPredicates(predicate.NewPredicateFuncs(isMissing))).
		Watches(&rkev1.RKECluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToMachines), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToMachines)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the missingnode controller: %w", err)
	}
	return nil
}

// clusterToMachines maps a Cluster, or its RKECluster, which mostly has the same name, to the machines that miss their Node.
func (r *Reconciler) clusterToMachines(ctx context.Context, object client.Object) []ctrl.Request {
	name := object.GetLabels()[clusterv1.ClusterNameLabel]
	if name == "" {
		name = object.GetName()
	}
	var machines clusterv1.MachineList
	if err := r.Client.List(ctx, &machines, client.InNamespace(object.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot find the Machines of a cluster", "Cluster", object.GetNamespace()+"/"+name)
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		if isMissing(&machines.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
		}
	}
	return requests
}
