package etcdremoval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/predicates"
)

const controllerName = "etcdremoval"

const fieldOwner = client.FieldOwner("drover-" + controllerName)

// Reconciler reconciles the members of etcd of Clusters of Cluster API.
type Reconciler struct {
	Client client.Client
	// Cache reads plan Secrets with their content. The manager's, where unset.
	Cache client.Reader
	// Live reads past the cache, before something is done that cannot be taken back. The manager's, where unset.
	Live client.Reader
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache
	// Now is the clock; time.Now where unset.
	Now func() time.Time

	controller controller.Controller
	// removing are the clusters in which a Machine waits for its member to be removed, with the time at which they were last looked at through
	// another connection; zero for never. Only those look at every report of an agent.
	removing sync.Map
}

// SetupWithManager registers the controller. Nodes are watched per cluster, while one of its members is to be removed.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.ClusterCache == nil {
		return errors.New("setting up the etcdremoval controller: it has no ClusterCache")
	}
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
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&clusterv1.Cluster{}, builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(byLabel(clusterv1.ClusterNameLabel)), builder.WithPredicates(machineChanged)).
		Watches(&rkev1.RKEBootstrap{}, handler.EnqueueRequestsFromMapFunc(byLabel(clusterv1.ClusterNameLabel)), builder.WithPredicates(bootstrapChanged)).
		Watches(&rkev1.RKEControlPlane{}, handler.EnqueueRequestsFromMapFunc(ofControlPlane), builder.WithPredicates(controlPlaneChanged)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofPlanSecret)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.ofConnection)).
		WithOptions(opts).
		Build(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the etcdremoval controller: %w", err)
	}
	return nil
}
