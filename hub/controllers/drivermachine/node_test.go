package drivermachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodeOfMovedMachine: a Machine that was moved to another hub has another UID than the label of its Node, which is found by the
// provider ID. A machine without one has no Node but that with its label.
func TestNodeOfMovedMachine(t *testing.T) {
	node := func(name, uid, provider string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rkev1.MachineUIDLabel: uid}},
			Spec: corev1.NodeSpec{ProviderID: provider}}
	}
	for name, tt := range map[string]struct {
		nodes      []*corev1.Node
		providerID string
		want       string
		reason     string
	}{
		"its label":    {nodes: []*corev1.Node{node("a", "machine", "lab://1"), node("b", "other", "lab://2")}, want: "a"},
		"moved":        {[]*corev1.Node{node("a", "earlier", "lab://1"), node("b", "other", "lab://2")}, "lab://1", "a", ""},
		"joined again": {[]*corev1.Node{node("a", "earlier", "lab://1"), node("b", "machine", "lab://2")}, "lab://1", "b", ""},
		"not there yet": {nodes: []*corev1.Node{node("a", "earlier", ""), node("b", "other", "lab://2")},
			reason: "WaitingForNode"},
		"gone": {nodes: []*corev1.Node{node("b", "other", "lab://2")}, providerID: "lab://1", reason: "WaitingForNode"},
	} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "driven"}}
		cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		builder := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme))
		for _, n := range tt.nodes {
			builder.WithObjects(n)
		}
		h := newHub(t, &fakeDrivers{})
		h.clusterCache = clustercache.NewFakeClusterCache(builder.Build(), client.ObjectKeyFromObject(cluster), "drivermachine-lab-nodes")
		s := &scope{object: h.infra.DeepCopy(), cluster: cluster,
			machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "machine"}}}
		s.object.Object["spec"] = map[string]any{"providerID": tt.providerID}
		if err := h.reconcileNode(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got, reason string
		if s.node != nil {
			got = s.node.Name
		}
		if s.found != nil {
			reason = s.found.Reason
		}
		if diff := cmp.Diff([]string{tt.want, tt.reason}, []string{got, reason}); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// TestMachineIndex: nothing is kept of a machine that is gone, nor of the Machine that another one has replaced.
func TestMachineIndex(t *testing.T) {
	h := newHub(t, &fakeDrivers{})
	one, gone := client.ObjectKey{Namespace: "ns", Name: "one"}, client.ObjectKey{Namespace: "ns", Name: "gone"}
	h.byMachine.set("earlier", one)
	h.byMachine.set("machine", one)
	h.byMachine.set("deleted", gone)
	if _, err := h.Reconcile(t.Context(), ctrl.Request{NamespacedName: gone}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]client.ObjectKey{"machine": one}, h.byMachine.keys); diff != "" {
		t.Errorf("machines by the UID of their Machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[client.ObjectKey]string{one: "machine"}, h.byMachine.uids); diff != "" {
		t.Errorf("UIDs by machine (-want +got):\n%s", diff)
	}
	// A Machine that refers to another infrastructure machine now keeps that one.
	h.byMachine.set("machine", gone)
	h.byMachine.forget(one)
	if diff := cmp.Diff([]ctrl.Request{{NamespacedName: gone}}, h.byMachine.get("machine")); diff != "" {
		t.Errorf("the machine of a Machine (-want +got):\n%s", diff)
	}
}
