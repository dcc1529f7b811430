package machinestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func testNode(name string, change func(*corev1.Node)) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	if change != nil {
		change(&node)
	}
	return node
}

func voter(node *corev1.Node) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: rollout.EtcdIsVoter, Status: corev1.ConditionTrue},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

func TestNodes(t *testing.T) {
	nodes := NewNodes([]corev1.Node{
		testNode("told", func(n *corev1.Node) { n.Labels[rkev1.MachineUIDLabel] = "uid-1"; voter(n) }),
		testNode("found", nil),
		testNode("provided", func(n *corev1.Node) { n.Spec.ProviderID = "lab:///3" }),
		testNode("moved", func(n *corev1.Node) {
			n.Labels[rkev1.MachineUIDLabel] = "uid-of-another-hub"
			n.Annotations[clusterv1.ClusterNamespaceAnnotation], n.Annotations[clusterv1.MachineAnnotation] = "ns", "four"
		}),
		testNode("of-another-namespace", func(n *corev1.Node) {
			n.Annotations[clusterv1.ClusterNamespaceAnnotation], n.Annotations[clusterv1.MachineAnnotation] = "other", "five"
		}),
		testNode("z-foreign", voter),
		testNode("a-foreign", func(n *corev1.Node) { n.Labels[rollout.EtcdRoleLabel] = "true" }),
		testNode("worker", nil),
	})
	machine := func(name, uid string) *clusterv1.Machine {
		return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	}
	two, three := machine("two", "uid-2"), machine("three", "uid-3")
	two.Status.NodeRef.Name = "found"
	three.Spec.ProviderID = "lab:///3"
	for want, m := range map[string]*clusterv1.Machine{"told": machine("one", "uid-1"), "found": two, "provided": three,
		"moved": machine("four", "uid-4"), "": machine("five", "uid-5")} {
		got := ""
		if node := nodes.Of(m); node != nil {
			got = node.Name
		}
		if got != want {
			t.Errorf("the Node of %s is %q, want %q", m.Name, got, want)
		}
	}
	want := []rollout.Member{
		{Node: "a-foreign", State: rollout.NodeNotReady, Membership: rollout.MemberUnknown},
		{Node: "z-foreign", State: rollout.NodeReady, Membership: rollout.MemberVoter, Health: rollout.MemberHealthy},
	}
	if diff := cmp.Diff(want, nodes.OrphanedMembers()); diff != "" {
		t.Errorf("foreign Nodes (-want +got):\n%s", diff)
	}
}

// TestHostNameChanged: a machine whose host name has changed has two Nodes, in any order. The one that is there counts, and the other one
// is no further member of etcd.
func TestHostNameChanged(t *testing.T) {
	of := func(name string, created int64, ready bool) corev1.Node {
		return testNode(name, func(n *corev1.Node) {
			n.Labels[rkev1.MachineUIDLabel], n.Annotations["etcd.k3s.cattle.io/node-name"] = "uid", "before-12345678"
			n.CreationTimestamp = metav1.Unix(created, 0)
			voter(n)
			if !ready {
				n.Status.Conditions[1].Status = corev1.ConditionUnknown
			}
		})
	}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "uid"}}
	machine.Status.NodeRef.Name = "before"
	for want, nodes := range map[string][]corev1.Node{
		"after":      {of("before", 1, false), of("after", 2, true)},
		"before":     {of("before", 1, true), of("back-again", 2, false)},
		"both-ready": {of("before", 1, true), of("both-ready", 2, true)},
		"both-lost":  {of("before", 1, false), of("both-lost", 2, false)},
	} {
		other := testNode("other", voter)
		for _, order := range [][]corev1.Node{{nodes[0], nodes[1], other}, {other, nodes[1], nodes[0]}} {
			found := NewNodes(order)
			found.Know(machine)
			if node := found.Of(machine); node == nil || node.Name != want {
				t.Errorf("the Node is %v, want %s", node, want)
			}
			if orphaned := found.OrphanedMembers(); len(orphaned) != 1 || orphaned[0].Node != "other" {
				t.Errorf("%s: members without a Machine are %+v", want, orphaned)
			}
		}
	}
}

// TestTakenNode: the Node of a machine that was installed again is that of its new Machine only.
func TestTakenNode(t *testing.T) {
	nodes := NewNodes([]corev1.Node{testNode("n", func(n *corev1.Node) {
		n.Labels[rkev1.MachineUIDLabel], n.Spec.ProviderID = "uid-new", "k3s://n"
		voter(n)
	})})
	machine := func(uid string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
		m.Status.NodeRef.Name, m.Spec.ProviderID = "n", "k3s://n"
		return m
	}
	earlier, present := machine("uid-earlier"), machine("uid-new")
	if nodes.Of(earlier) == nil || nodes.Taken(earlier) != "" {
		t.Error("a label of a Machine that is not known, as after a move to another hub, counts")
	}
	nodes.Know(earlier)
	nodes.Know(present)
	if nodes.Of(earlier) != nil || nodes.Taken(earlier) != "n" {
		t.Error("the Node counts as that of the earlier Machine")
	}
	if nodes.Of(present) == nil || nodes.Taken(present) != "" {
		t.Error("the Node does not count as that of the present Machine")
	}
}
