package machinestate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// Nodes are the Nodes of one cluster, indexed by what ties them to Machines.
type Nodes struct {
	nodes                                []corev1.Node
	byName, byUID, byProvider, byMachine map[string]*corev1.Node
	// matched are the names of those that Of has returned.
	matched map[string]bool
	// machines are the UIDs of the cluster's Machines that are known.
	machines map[string]bool
}

// NewNodes indexes the Nodes of a cluster. They are not changed.
func NewNodes(nodes []corev1.Node) *Nodes {
	n := &Nodes{nodes: nodes, byName: map[string]*corev1.Node{}, byUID: map[string]*corev1.Node{}, byProvider: map[string]*corev1.Node{},
		byMachine: map[string]*corev1.Node{}, matched: map[string]bool{}, machines: map[string]bool{}}
	for i := range nodes {
		node := &nodes[i]
		n.byName[node.Name] = node
		uid := node.Labels[rkev1.MachineUIDLabel]
		if other := n.byUID[uid]; other == nil || preferred(node, other) {
			n.byUID[uid] = node
		}
		n.byProvider[node.Spec.ProviderID] = node
		n.byMachine[node.Annotations[clusterv1.ClusterNamespaceAnnotation]+"/"+node.Annotations[clusterv1.MachineAnnotation]] = node
	}
	delete(n.byUID, "")
	delete(n.byProvider, "")
	return n
}

// preferred reports whether of two Nodes with the label of one Machine, whose host name has changed, a Node is the one that the machine has
// now. Caches list Nodes in any order.
func preferred(node, other *corev1.Node) bool {
	ready, otherReady := rollout.StateOf(node) == rollout.NodeReady, rollout.StateOf(other) == rollout.NodeReady
	switch {
	case ready != otherReady:
		return ready
	case !node.CreationTimestamp.Equal(&other.CreationTimestamp):
		return other.CreationTimestamp.Before(&node.CreationTimestamp)
	}
	return node.Name < other.Name
}

// Know makes a Machine of the cluster known: a Node with its label is no other Machine's. A machine that was installed again, and has
// registered as another one, may have the name of its earlier Node, and so the same provider ID, which the earlier Machine names still.
func (n *Nodes) Know(machine *clusterv1.Machine) {
	if machine.UID != "" {
		n.machines[string(machine.UID)] = true
	}
}

// Taken is the name of the Node that a Machine names in its status, if it has the label of another known Machine; empty if not.
func (n *Nodes) Taken(machine *clusterv1.Machine) string {
	node := n.byName[machine.Status.NodeRef.Name]
	if node == nil || !n.isOfAnother(node, machine) {
		return ""
	}
	return node.Name
}

func (n *Nodes) isOfAnother(node *corev1.Node, machine *clusterv1.Machine) bool {
	uid := node.Labels[rkev1.MachineUIDLabel]
	return uid != string(machine.UID) && n.machines[uid]
}

// Of returns the Node of a Machine, or nil. The label that the machine's plan sets comes first; then what Cluster API has found; then
// Cluster API's annotations on the Node, which still hold after a Machine was moved to another hub and has another UID and no status yet.
func (n *Nodes) Of(machine *clusterv1.Machine) *corev1.Node {
	for _, node := range []*corev1.Node{
		n.byUID[string(machine.UID)], n.byName[machine.Status.NodeRef.Name], n.byProvider[machine.Spec.ProviderID],
		n.byMachine[machine.Namespace+"/"+machine.Name],
	} {
		if node != nil && !n.isOfAnother(node, machine) {
			n.matched[node.Name] = true
			return node
		}
	}
	return nil
}

// All returns all Nodes, which are not to be changed.
func (n *Nodes) All() []corev1.Node { return n.nodes }

// Matched reports whether Of has returned the Node of a name for a Machine.
func (n *Nodes) Matched(name string) bool { return n.matched[name] }

// OrphanedMembers are the members of etcd that belong to no Machine, by name. Of has to be called for every Machine first. A Node that
// names the member of a Machine's Node, as the one that a machine had before its host name was changed, is no other member.
func (n *Nodes) OrphanedMembers() []rollout.Member {
	var orphaned []rollout.Member
	known := map[string]bool{}
	for name := range n.matched {
		known[rollout.MemberNameOf(n.byName[name])] = true
	}
	delete(known, "")
	for i := range n.nodes {
		node := &n.nodes[i]
		if n.matched[node.Name] || known[rollout.MemberNameOf(node)] {
			continue
		}
		if membership := rollout.MembershipOf(node); membership != rollout.MemberNone {
			health, at := rollout.MemberHealthOf(node)
			orphaned = append(orphaned, rollout.Member{
				Node: node.Name, State: rollout.StateOf(node), Membership: membership, Health: health, CheckedAt: at,
			})
		}
	}
	slices.SortFunc(orphaned, func(a, b rollout.Member) int { return strings.Compare(a.Node, b.Node) })
	return orphaned
}

// NodeDiffers reports whether an update of a Node may change a decision of hub/plan/rollout, the Machine that the Node belongs to, or where
// others join it. It is false for what a kubelet reports every few seconds.
func NodeDiffers(before, after *corev1.Node) bool {
	var a, b rollout.Machine
	a.ReadNode(before)
	b.ReadNode(after)
	return a.NodeDiffers(b) || a.Version != b.Version || !slices.Equal(before.Status.Addresses, after.Status.Addresses) ||
		before.Labels[rkev1.MachineUIDLabel] != after.Labels[rkev1.MachineUIDLabel] || before.Spec.ProviderID != after.Spec.ProviderID ||
		rollout.MemberNameOf(before) != rollout.MemberNameOf(after)
}
