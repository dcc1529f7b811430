package nodesync

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/drover-dev/drover/hub/ownership"
)

const controllerName = "nodesync"

const fieldOwner = client.FieldOwner("drover-nodesync")

// Reconciler keeps the Nodes of RKEBootstraps.
type Reconciler struct {
	// Client is the manager's, where unset.
	Client client.Client
	// Cache reads plan Secrets. The manager's, where unset.
	Cache client.Reader
	// ClusterCache holds the connections to the clusters.
	ClusterCache clustercache.ClusterCache

	controller controller.Controller
}

// SetupWithManager registers the controller. Nodes are watched per cluster, once it is connected.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	if r.ClusterCache == nil {
		return errors.New("setting up the nodesync controller: it has no ClusterCache")
	}
	if r.Client == nil {
		r.Client = mgr.GetClient()
	}
	if r.Cache == nil {
		r.Cache = mgr.GetCache()
	}
	var err error
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&rkev1.RKEBootstrap{}, builder.WithPredicates(annotationsChanged)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(machineToBootstrap), builder.WithPredicates(nodeFound)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(planToBootstrap), builder.WithPredicates(nodeLabelsChanged)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.clusterToBootstraps), builder.WithPredicates(pauseChanged)).
		WatchesRawSource(r.ClusterCache.GetClusterSource(controllerName, r.clusterToBootstraps)).
		WithOptions(opts).
		Build(failure.Requeue(r))
	if err != nil {
		return fmt.Errorf("setting up the nodesync controller: %w", err)
	}
	return nil
}

// Reconcile brings one Node up to date. Every wait ends with a watch: of the Machine, of the Cluster, of its connection, or of its Nodes.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	bootstrap := &rkev1.RKEBootstrap{}
	if err := r.Client.Get(ctx, req.NamespacedName, bootstrap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	machine, _, err := ownership.Machine(ctx, r.Client, bootstrap)
	if err != nil || machine == nil {
		return ctrl.Result{}, err
	}
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case !bootstrap.DeletionTimestamp.IsZero(), !machine.DeletionTimestamp.IsZero(), !cluster.DeletionTimestamp.IsZero():
		return ctrl.Result{}, nil
	case annotations.IsPaused(cluster, machine), annotations.HasPaused(bootstrap):
		return ctrl.Result{}, nil
	case !machine.Status.NodeRef.IsDefined():
		return ctrl.Result{}, nil
	}
	plan, err := r.planSecret(ctx, bootstrap)
	if err != nil {
		return ctrl.Result{}, err
	}
	w := readWanted(machine, bootstrap, plan)
	synced, err := r.carry(ctx, client.ObjectKeyFromObject(cluster), machine.Status.NodeRef.Name, w)
	if err != nil || !synced {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, bootstrap, w)
}

// planSecret reads the machine's plan Secret; nil as long as there is none.
func (r *Reconciler) planSecret(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}, secret, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the plan Secret of the machine: %w", err)
	}
	return secret, nil
}
