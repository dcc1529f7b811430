package drivermachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
