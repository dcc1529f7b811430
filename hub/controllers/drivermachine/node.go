package drivermachine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// machineIndex maps the UID of a Machine, which its Node has as a label, to the infrastructure machine.
type machineIndex struct {
	mutex sync.Mutex
	keys  map[string]client.ObjectKey
	// uids has the UID that each infrastructure machine was set with last.
	uids map[client.ObjectKey]string
}

func (i *machineIndex) set(uid string, key client.ObjectKey) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.keys == nil {
		i.keys, i.uids = map[string]client.ObjectKey{}, map[client.ObjectKey]string{}
	}
	if i.uids[key] != uid {
		i.remove(key)
	}
	i.keys[uid], i.uids[key] = key, uid
}

// forget drops an infrastructure machine that is gone.
func (i *machineIndex) forget(key client.ObjectKey) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.remove(key)
}

// remove is forget with the lock held.
func (i *machineIndex) remove(key client.ObjectKey) {
	uid, known := i.uids[key]
	if known && i.keys[uid] == key {
		delete(i.keys, uid)
	}
	delete(i.uids, key)
}

func (i *machineIndex) get(uid string) []ctrl.Request {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if key, ok := i.keys[uid]; ok && uid != "" {
		return []ctrl.Request{{NamespacedName: key}}
	}
	return nil
}

// nodeChanged drops the heartbeats of kubelets.
var nodeChanged = predicates.OnUpdate(func(before, after *corev1.Node) bool {
	return before.Spec.ProviderID != after.Spec.ProviderID || !maps.Equal(before.Labels, after.Labels) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
})

// reconcileNode finds the Node. Every wait ends with a watch: of the Cluster, of its connection, or of its Nodes.
func (m *machines) reconcileNode(ctx context.Context, s *scope) error {
	if s.cluster == nil || !ptr.Deref(s.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		s.found = cause.New("WaitingForControlPlane", "Waiting for the control plane of the cluster to be initialized")
		return nil
	}
	key := client.ObjectKeyFromObject(s.cluster)
	err := m.clusterCache.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:    "drivermachine-" + m.driver + "-nodes",
		Watcher: m.controller,
		Kind:    &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			return m.byMachine.get(o.GetLabels()[rkev1.MachineUIDLabel])
		}),
		Predicates: []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	var nodes []corev1.Node
	if err == nil {
		var reader client.Reader
		if reader, err = m.clusterCache.GetReader(ctx, key); err == nil {
			providerID, _, _ := unstructured.NestedString(s.object.Object, "spec", "providerID") // its definition allows nothing else
			nodes, err = clusternodes.OfMachine(ctx, reader, s.machine.UID, providerID)
		}
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		s.nodeUnknown = true
		s.found = cause.New(clusterv1.ConnectionDownReason, "Waiting for the connection to the API of the cluster")
		return nil
	}
	if err != nil {
		s.nodeUnknown = true
		s.found = cause.New(reasonError, "Listing the Nodes of the cluster: %v; retrying", err)
		return fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	s.node, s.found = selectNode(nodes, s.machine)
	return nil
}

func selectNode(nodes []corev1.Node, machine *clusterv1.Machine) (*corev1.Node, *cause.Cause) {
	switch {
	case len(nodes) == 0:
		return nil, cause.New("WaitingForNode", "Waiting for Node with label %s=%s to appear in the cluster", rkev1.MachineUIDLabel, machine.UID)
	case len(nodes) > 1:
		return nil, clusternodes.Several(nodes, machine.UID)
	case nodes[0].Spec.ProviderID == "":
		return nil, cause.New("WaitingForProviderID",
			"Waiting for the cloud controller manager of the cluster to set spec.providerID of Node %s", nodes[0].Name)
	}
	return &nodes[0], nil
}

// clusterToMachines maps a Cluster to its machines of this driver.
func (m *machines) clusterToMachines(ctx context.Context, o client.Object) []ctrl.Request {
	return m.list(ctx, client.InNamespace(o.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: o.GetName()})
}

// nodeDriverToMachines maps the NodeDriver to all of its machines.
func (m *machines) nodeDriverToMachines(ctx context.Context, o client.Object) []ctrl.Request {
	if driver, ok := o.(*managementv3.NodeDriver); !ok || driver.Name != m.nodeDriver {
		return nil
	}
	return m.list(ctx)
}

func (m *machines) list(ctx context.Context, opts ...client.ListOption) []ctrl.Request {
	if m.stopped.Load() {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(m.kind)
	return objects.List(ctx, m.Client, list, opts...)
}
