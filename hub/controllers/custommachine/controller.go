package custommachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/paused"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/controllers/predicates"
	"github.com/drover-dev/drover/hub/ownership"
)

const fieldOwner = client.FieldOwner("drover-custommachine")

// Reconciler reconciles CustomMachines.
type Reconciler struct {
	Client client.Client
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(r.Client, &rkev1.CustomMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to CustomMachines: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("custommachine").
		For(&rkev1.CustomMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(rkev1.GroupVersion.WithKind("CustomMachine")))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines), builder.WithPredicates(predicates.ClusterChanged)).
		WithOptions(opts).
		Complete(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the custommachine controller: %w", err)
	}
	return nil
}

// Reconcile writes the status once at the end. There is nothing to remove when a CustomMachine goes: the machine stays with its owner, and
// its credentials go with the RKEBootstrap.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	custom := &rkev1.CustomMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, custom); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !custom.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s := &scope{custom: custom}
	var cluster *clusterv1.Cluster
	machine, refusal, err := ownership.Machine(ctx, r.Client, custom)
	if err != nil {
		return ctrl.Result{}, err
	}
	s.machine, s.refused = machine, refusal
	if machine != nil {
		cluster, err = util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("reading the Cluster of the CustomMachine: %w", err)
		}
		if err != nil {
			cluster = nil
		}
	}
	if isPaused, changed, err := paused.EnsurePausedCondition(ctx, r.Client, cluster, custom); err != nil || isPaused || changed {
		return ctrl.Result{}, err
	}
	helper := patch.NewHelper(r.Client, custom, fieldOwner, ownedConditions...)
	setStatus(s)
	return ctrl.Result{}, helper.Patch(ctx, custom)
}
