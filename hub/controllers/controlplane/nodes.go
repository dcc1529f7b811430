package controlplane

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/machinestate"
	"github.com/drover-dev/drover/hub/rollout"
)

// askAgain is how long a pass waits before it asks a cluster again whose connection is there, and that did not answer.
const askAgain = 10 * time.Second

// readNodes adds what the cluster's own Nodes tell of the machines: whether they are ready, and what part they have in etcd. A cluster that
// cannot be asked leaves both unknown, which stops only what needs to know. A watch ends every wait for it.
func (r *Reconciler) readNodes(ctx context.Context, s *scope) {
	if r.ClusterCache == nil || s.cluster == nil || !isInitialized(s.controlPlane) {
		return
	}
	if s.nodes == nil {
		nodes, err := r.listNodes(ctx, s)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			s.silentSince = r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(s.cluster)).LastProbeSuccessTime
			return
		}
		if err != nil {
			// What ails the cluster may be healed by the very plan that this pass delivers.
			ctrl.LoggerFrom(ctx).Error(err, "Cannot read the Nodes of the cluster; going on without")
			s.lookAgain(askAgain)
			return
		}
		s.nodes = machinestate.NewNodes(nodes)
	}
	for _, m := range s.machines {
		node := s.nodes.Of(m.machine)
		m.state.ReadNode(node)
		if node != nil && m.reported.empty() {
			m.reported = addressesOf(node)
		}
	}
	s.strangers = s.nodes.Strangers()
}

// listNodes reads from the cache that Cluster API keeps of the cluster's Nodes, and has changes of them reported.
func (r *Reconciler) listNodes(ctx context.Context, s *scope) ([]corev1.Node, error) {
	key := client.ObjectKeyFromObject(s.cluster)
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.controlPlane)}
	err := r.ClusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         controllerName + "-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{request} }),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	if err != nil {
		return nil, err
	}
	reader, err := r.ClusterCache.GetReader(ctx, key)
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	return nodes.Items, nil
}

// addressesOf are what a Node says of where it is reached, for machines of which nobody else says it.
func addressesOf(node *corev1.Node) (a addressSet) {
	for _, address := range node.Status.Addresses {
		switch address.Type {
		case corev1.NodeInternalIP:
			a.Internal = append(a.Internal, address.Address)
		case corev1.NodeExternalIP:
			a.External = append(a.External, address.Address)
		}
	}
	return a
}

// nodeChanged drops what a kubelet reports every few seconds, and all else that decides nothing.
var nodeChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, ok2 := e.ObjectNew.(*corev1.Node)
		if !ok || !ok2 {
			return true
		}
		var a, b rollout.Machine
		a.ReadNode(before)
		b.ReadNode(after)
		return a.NodeDiffers(b) || a.Version != b.Version ||
			before.Labels[rkev1.MachineUIDLabel] != after.Labels[rkev1.MachineUIDLabel] || before.Spec.ProviderID != after.Spec.ProviderID
	},
}
