package nodesync

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodeOfTwoMachines: a machine that was installed again and has registered as another Machine, with the Node name of before, gets the
// labels of that one only. The earlier Machine, which names the Node still, writes nothing.
func TestNodeOfTwoMachines(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	key := client.ObjectKey{Namespace: "ns", Name: "c"}
	machine := func(name string) []client.Object {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}, Spec: clusterv1.MachineSpec{ClusterName: "c"}}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: name}
		m.Status.NodeRef.Name = "n"
		return []client.Object{m, &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Annotations:     map[string]string{rkev1.LabelsAnnotation: `{"of":"` + name + `"}`},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))}}}}
	}
	for name, tc := range map[string]struct {
		label    string
		machines []client.Object
		sync     []string
		want     string
	}{
		"both machines are there":        {"uid-new", append(machine("earlier"), machine("new")...), []string{"new", "earlier"}, "new"},
		"the new one has no Node yet":    {"uid-earlier", append(machine("earlier"), machine("new")...), []string{"new", "earlier"}, "earlier"},
		"a machine that moved":           {"uid-of-another-hub", machine("earlier"), []string{"earlier"}, "earlier"},
		"a Node without the label of it": {"", machine("earlier"), []string{"earlier"}, "earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).
				WithObjects(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}).WithObjects(tc.machines...).Build()
			remote := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n",
				Labels: map[string]string{rkev1.MachineUIDLabel: tc.label}}}).Build()
			r := &Reconciler{Client: c, Cache: c, ClusterCache: clustercache.NewFakeClusterCache(remote, key, controllerName+"-nodes")}
			for _, of := range tc.sync {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: of}}); err != nil {
					t.Fatal(err)
				}
			}
			node := &corev1.Node{}
			if err := remote.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
				t.Fatal(err)
			}
			if node.Labels["of"] != tc.want {
				t.Errorf("the Node has the labels of %q, want those of %q", node.Labels["of"], tc.want)
			}
		})
	}
}
