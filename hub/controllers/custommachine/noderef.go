package custommachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	"github.com/drover-dev/drover/hub/util/cause"
)

// reconcileNode finds the Node. Every wait ends with a watch: of the Cluster, of its connection, or of its Nodes.
func (r *Reconciler) reconcileNode(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		s.waiting = cause.New("WaitingForControlPlane", "Waiting for the control plane of the cluster to be initialized")
		return ctrl.Result{}, nil
	}
	nodes, err := r.nodesOf(ctx, s)
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		s.unknown = true
		s.waiting = cause.New(clusterv1.ConnectionDownReason, "Waiting for the connection to the API of the cluster")
		return ctrl.Result{}, nil
	}
	if err != nil {
		s.unknown = true
		s.waiting = cause.New("Error", "Listing the Nodes of the cluster: %v; retrying", err)
		return ctrl.Result{}, fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	s.node, s.waiting = selectNode(nodes, s.machine)
	return ctrl.Result{}, r.reconcileTaken(ctx, s)
}

// nodesOf watches the cluster's Nodes and returns those of the Machine.
func (r *Reconciler) nodesOf(ctx context.Context, s *scope) ([]corev1.Node, error) {
	key := client.ObjectKeyFromObject(s.cluster)
	err := r.ClusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         controllerName + "-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.nodeToCustomMachines(key)),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	if err != nil {
		return nil, err
	}
	reader, err := r.ClusterCache.GetReader(ctx, key)
	if err != nil {
		return nil, err
	}
	return clusternodes.OfMachine(ctx, reader, s.machine.UID, s.custom.Spec.ProviderID)
}

// selectNode returns the one Node of a Machine, or what is wrong with the Nodes that were found.
func selectNode(nodes []corev1.Node, machine *clusterv1.Machine) (*corev1.Node, *cause.Cause) {
	switch {
	case len(nodes) == 0:
		return nil, cause.New(reasonWaitingForNode, "%s", waitingForNode(machine))
	case len(nodes) > 1:
		return nil, clusternodes.Several(nodes, machine.UID)
	case nodes[0].Spec.ProviderID == "":
		return nil, cause.New("WaitingForProviderID",
			"Waiting for the cloud controller manager of the cluster to set spec.providerID of Node %s", nodes[0].Name)
	}
	return &nodes[0], nil
}
