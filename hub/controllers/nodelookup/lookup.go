package nodelookup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// scope is what one pass has read and found.
type scope struct {
	custom  *rkev1.CustomMachine
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// node is set once it was found; waiting tells why it was not.
	node    *corev1.Node
	waiting *problem
}

// problem is a reason in CamelCase with the words for it. unknown is set where nothing is known of the Node, neither good nor bad.
type problem struct {
	reason, message string
	unknown         bool
}

// lookUp finds the Node. Every wait ends with a watch: of the Cluster, of its connection, or of its Nodes.
func (r *Reconciler) lookUp(ctx context.Context, s *scope) error {
	if !ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		s.waiting = &problem{reason: "WaitingForControlPlane", message: "Waiting for the API of the cluster to be reached for the first time"}
		return nil
	}
	key := client.ObjectKeyFromObject(s.cluster)
	err := r.ClusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         controllerName + "-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.nodeToMachine),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	var nodes []corev1.Node
	if err == nil {
		var reader client.Reader
		if reader, err = r.ClusterCache.GetReader(ctx, key); err == nil {
			nodes, err = list(ctx, reader, s)
		}
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		s.waiting = &problem{reason: clusterv1.ConnectionDownReason, message: "Waiting for the connection to the API of the cluster", unknown: true}
		return nil
	}
	if err != nil {
		s.waiting = &problem{reason: "Error", message: fmt.Sprintf("The Nodes of the cluster could not be read, it is tried again: %v", err), unknown: true}
		return fmt.Errorf("reading the Nodes of the cluster: %w", err)
	}
	s.node, s.waiting = pick(nodes, s.machine)
	return nil
}

// list returns the Nodes with the Machine's label; where there is none, the Node that was found earlier: a Machine that was moved to another
// hub has another UID than its Node knows.
func list(ctx context.Context, reader client.Reader, s *scope) ([]corev1.Node, error) {
	var labelled corev1.NodeList
	err := reader.List(ctx, &labelled, client.MatchingLabels{rkev1.MachineUIDLabel: string(s.machine.UID)})
	if err != nil || len(labelled.Items) > 0 || s.custom.Spec.ProviderID == "" {
		return labelled.Items, err
	}
	var all corev1.NodeList
	err = reader.List(ctx, &all)
	return slices.DeleteFunc(all.Items, func(n corev1.Node) bool { return n.Spec.ProviderID != s.custom.Spec.ProviderID }), err
}

// pick returns the one Node of a machine, or what is wrong with what was found.
func pick(nodes []corev1.Node, machine *clusterv1.Machine) (*corev1.Node, *problem) {
	switch {
	case len(nodes) == 0:
		return nil, &problem{reason: "WaitingForNode",
			message: fmt.Sprintf("Waiting for the machine's Node, labelled %s=%s, to appear in the cluster", rkev1.MachineUIDLabel, machine.UID)}
	case len(nodes) > 1:
		return nil, &problem{reason: "SeveralNodes",
			message: fmt.Sprintf("The Nodes %s and %s both carry the label %s=%s; delete the one that is not this machine's", nodes[0].Name, nodes[1].Name, rkev1.MachineUIDLabel, machine.UID)}
	case nodes[0].Spec.ProviderID == "":
		return nil, &problem{reason: "WaitingForProviderID",
			message: fmt.Sprintf("Waiting for the cluster's cloud controller to give the Node %s a spec.providerID", nodes[0].Name)}
	}
	return &nodes[0], nil
}
