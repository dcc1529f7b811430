package machinestate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// Nodes are the Nodes of one cluster, to be found by their Machine.
type Nodes struct {
	nodes                               []corev1.Node
	byName, byUID, byProvider, byMember map[string]*corev1.Node
	// found are the names of those that Of has returned.
	found map[string]bool
}

// NewNodes returns the Nodes of a cluster. They are not changed.
func NewNodes(nodes []corev1.Node) *Nodes {
	n := &Nodes{nodes: nodes, byName: map[string]*corev1.Node{}, byUID: map[string]*corev1.Node{}, byProvider: map[string]*corev1.Node{},
		byMember: map[string]*corev1.Node{}, found: map[string]bool{}}
	for i := range nodes {
		node := &nodes[i]
		n.byName[node.Name] = node
		n.byUID[node.Labels[rkev1.MachineUIDLabel]] = node
		n.byProvider[node.Spec.ProviderID] = node
		n.byMember[memberKey(node.Annotations[clusterv1.ClusterNamespaceAnnotation], node.Annotations[clusterv1.MachineAnnotation])] = node
	}
	for _, index := range []map[string]*corev1.Node{n.byUID, n.byProvider} {
		delete(index, "")
	}
	return n
}

func memberKey(namespace, machine string) string { return namespace + "/" + machine }

// Of returns the Node of a Machine, or nil. What the machine was told to write on it comes first; then what Cluster API has found; then what
// Cluster API has written on it, which holds when a Machine was moved to another hub, where it has another UID and no status yet.
func (n *Nodes) Of(machine *clusterv1.Machine) *corev1.Node {
	for _, node := range []*corev1.Node{
		n.byUID[string(machine.UID)], n.byName[machine.Status.NodeRef.Name], n.byProvider[machine.Spec.ProviderID], n.byMember[memberKey(machine.Namespace, machine.Name)],
	} {
		if node != nil {
			n.found[node.Name] = true
			return node
		}
	}
	return nil
}

// Strangers are the members of etcd that are no Machine's, by name. Of has to be asked for every Machine before.
func (n *Nodes) Strangers() []rollout.Member {
	var strangers []rollout.Member
	for i := range n.nodes {
		node := &n.nodes[i]
		if n.found[node.Name] {
			continue
		}
		if membership := rollout.MembershipOf(node); membership != rollout.MemberNone {
			health, at := rollout.MemberHealthOf(node)
			strangers = append(strangers, rollout.Member{Node: node.Name, State: rollout.StateOf(node), Membership: membership, Health: health, CheckedAt: at})
		}
	}
	slices.SortFunc(strangers, func(a, b rollout.Member) int { return strings.Compare(a.Node, b.Node) })
	return strangers
}
