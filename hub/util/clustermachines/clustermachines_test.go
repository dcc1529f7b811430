package clustermachines

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// pair is a Machine of cluster "c" and its RKEBootstrap; change says in what they differ.
func pair(name string, change func(*clusterv1.Machine, *rkev1.RKEBootstrap)) []client.Object {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}
	machine := &clusterv1.Machine{ObjectMeta: *meta.DeepCopy()}
	machine.Spec.ClusterName = "c"
	machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEBootstrap",
		Name: name}
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: *meta.DeepCopy()}
	bootstrap.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	if change != nil {
		change(machine, bootstrap)
	}
	return []client.Object{machine, bootstrap}
}

func TestList(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	var all []client.Object
	for name, change := range map[string]func(*clusterv1.Machine, *rkev1.RKEBootstrap){
		"own":         nil,
		"no-label":    func(_ *clusterv1.Machine, b *rkev1.RKEBootstrap) { b.Labels = nil },
		"no-owner":    func(_ *clusterv1.Machine, b *rkev1.RKEBootstrap) { b.OwnerReferences = nil },
		"earlier":     func(_ *clusterv1.Machine, b *rkev1.RKEBootstrap) { b.OwnerReferences[0].UID = "of-an-earlier-machine" },
		"thief":       func(m *clusterv1.Machine, _ *rkev1.RKEBootstrap) { m.Spec.Bootstrap.ConfigRef.Name = "own" },
		"gone":        func(_ *clusterv1.Machine, b *rkev1.RKEBootstrap) { b.Name = "another" },
		"foreign":     func(m *clusterv1.Machine, _ *rkev1.RKEBootstrap) { m.Spec.ClusterName = "another" },
		"kubeadm":     func(m *clusterv1.Machine, _ *rkev1.RKEBootstrap) { m.Spec.Bootstrap.ConfigRef.Kind = "KubeadmConfig" },
		"not-labeled": func(m *clusterv1.Machine, _ *rkev1.RKEBootstrap) { m.Labels = nil },
		"elsewhere":   func(m *clusterv1.Machine, _ *rkev1.RKEBootstrap) { m.Namespace = "other" },
	} {
		all = append(all, pair(name, change)...)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
	machines, err := List(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range machines {
		got[m.Name] = ""
		if m.Bootstrap != nil {
			got[m.Name] = m.Bootstrap.Name
		}
	}
	want := map[string]string{"own": "own", "no-label": "no-label", "no-owner": "", "earlier": "", "thief": "", "gone": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the RKEBootstraps by Machine differ (-want +got):\n%s", diff)
	}
}

// TestListFails: a Machine whose RKEBootstrap cannot be read is not one without an RKEBootstrap.
func TestListFails(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	machine := pair("m", nil)[0]
	down := errors.New("the API is down")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(machine).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()
	if machines, err := List(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"}); !errors.Is(err, down) {
		t.Errorf("got %v and error %v, want %v", machines, err, down)
	}
}
