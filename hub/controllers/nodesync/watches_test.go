package nodesync

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodeToBootstraps: an event of a Node is mapped to its own machine, and the index is asked for it: one event must not read every
// Machine.
func TestNodeToBootstraps(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme)
	machine := func(cluster, name, node string) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}}
		m.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
			Name: name + "-bootstrap"}
		m.Status.NodeRef.Name = node
		return m
	}
	read := 0
	c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&clusterv1.Machine{}, index.MachineNodeNameField, index.MachineByNodeName).
		WithObjects(machine("one", "a", "node-1"), machine("one", "b", "node-2"), machine("two", "c", "node-1"), machine("one", "d", "")).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			read += len(list.(*clusterv1.MachineList).Items)
			return err
		}}).Build()
	r := &Reconciler{Client: c}
	got := r.nodeToBootstraps(client.ObjectKey{Namespace: "ns", Name: "one"})(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "a-bootstrap"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if read != 1 {
		t.Errorf("%d Machines were read, want 1", read)
	}
	all := r.clusterToBootstraps(t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one"}})
	if len(all) != 3 {
		t.Errorf("the Cluster is mapped to %v", all)
	}
}
