package custommachine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

func node(name, providerID string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: corev1.NodeHostName, Address: name}}},
	}
}

func TestSelectNode(t *testing.T) {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	for _, tt := range []struct {
		name   string
		nodes  []corev1.Node
		found  string
		reason string
	}{
		{name: "none", reason: "WaitingForNode"},
		{name: "one", nodes: []corev1.Node{node("a", "k3s://a")}, found: "a"},
		{name: "no provider ID", nodes: []corev1.Node{node("a", "")}, reason: "WaitingForProviderID"},
		{name: "two", nodes: []corev1.Node{node("a", "k3s://a"), node("b", "k3s://b")}, reason: "SeveralNodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, waiting := selectNode(tt.nodes, machine)
			if tt.found != "" {
				if waiting != nil || got == nil || got.Name != tt.found {
					t.Fatalf("got %v, %+v", got, waiting)
				}
				return
			}
			if got != nil || waiting == nil || waiting.Reason != tt.reason || waiting.Message == "" {
				t.Errorf("got %v, %+v, want reason %s", got, waiting, tt.reason)
			}
		})
	}
}

// TestSeveralNodesOfAServer: who deletes one of the Nodes of a server is to keep its etcd member.
func TestSeveralNodesOfAServer(t *testing.T) {
	for _, etcd := range []bool{false, true} {
		before, after := node("before", "k3s://before"), node("after", "k3s://after")
		if etcd {
			before.Labels = map[string]string{"node-role.kubernetes.io/etcd": "true"}
		}
		_, waiting := selectNode([]corev1.Node{after, before}, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: "u"}})
		if waiting == nil || strings.Contains(waiting.Message, "first remove its label node-role.kubernetes.io/etcd") != etcd {
			t.Errorf("etcd %t: %+v", etcd, waiting)
		}
	}
}

func TestSetNodeFound(t *testing.T) {
	found := node("a", "k3s://a")
	custom := &rkev1.CustomMachine{}
	setNodeFound(&scope{custom: custom, node: &found})
	want := []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}, {Type: clusterv1.MachineHostName,
		Address: "a"}}
	if diff := cmp.Diff(want, custom.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if custom.Spec.ProviderID != "k3s://a" || custom.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("got provider ID %q and %+v", custom.Spec.ProviderID, custom.Status.Conditions)
	}
	setNodeFound(&scope{custom: custom, waiting: cause.New("ConnectionDown", "Waiting"), unknown: true})
	if custom.Spec.ProviderID != "k3s://a" || len(custom.Status.Addresses) != 2 ||
		custom.Status.Conditions[0].Status != metav1.ConditionUnknown {
		t.Errorf("a lost connection changed what was known: %+v", custom)
	}
}

func TestNodeChanged(t *testing.T) {
	before, beat, labelled := node("a", "k3s://a"), node("a", "k3s://a"), node("a", "k3s://a")
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	labelled.Labels = map[string]string{rkev1.MachineUIDLabel: "u"}
	if nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &beat}) {
		t.Error("a heartbeat is taken for a change")
	}
	if !nodeChanged.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &labelled}) {
		t.Error("a new label is not taken for a change")
	}
}

func TestMachineUIDs(t *testing.T) {
	custom := &rkev1.CustomMachine{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", UID: "c"},
		{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Machine", UID: "m"},
		{APIVersion: "example.com/v1", Kind: "Machine", UID: "x"},
	}}}
	if diff := cmp.Diff([]string{"m"}, machineUIDs(custom)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
