package nodelookup

import (
	"context"
	"errors"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/controllers/predicates"
	"github.com/drover-dev/drover/hub/ownership"
)

const (
	controllerName = "nodelookup"
	fieldOwner     = client.FieldOwner("drover-nodelookup")
)

// Reconciler looks for the Nodes of CustomMachines.
type Reconciler struct {
	Client client.Client
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache

	controller controller.Controller
}

// SetupWithManager registers the controller. Nodes are watched per cluster, once it is connected.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.ClusterCache == nil {
		return errors.New("setting up the nodelookup controller: it has no ClusterCache")
	}
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if err := addIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.Client, &rkev1.CustomMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to CustomMachines: %w", err)
	}
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.CustomMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(rkev1.GroupVersion.WithKind("CustomMachine")))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines), builder.WithPredicates(predicates.ClusterChanged)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, clusterToMachines)).
		WithOptions(opts).
		Build(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the nodelookup controller: %w", err)
	}
	return nil
}

// Reconcile writes provider ID, addresses and the condition NodeFound once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ ctrl.Result, reterr error) {
	custom := &rkev1.CustomMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, custom); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, _, err := ownership.Machine(ctx, r.Client, custom)
	if err != nil || machine == nil {
		return ctrl.Result{}, err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !custom.DeletionTimestamp.IsZero() || annotations.IsPaused(cluster, custom) {
		return ctrl.Result{}, nil
	}
	helper := patch.NewHelper(r.Client, custom, fieldOwner, ownedConditions...)
	s := &scope{custom: custom, machine: machine, cluster: cluster}
	defer func() {
		setStatus(s)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, custom)})
	}()
	return ctrl.Result{}, r.lookUp(ctx, s)
}
