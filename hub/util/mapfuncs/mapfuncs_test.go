package mapfuncs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

func ref(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: kind, Name: name}
}

// TestReferences: an object is mapped to what it refers to, and one of another provider to nothing.
func TestReferences(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "labeled"}}
	own, foreign := &clusterv1.Cluster{ObjectMeta: meta}, &clusterv1.Cluster{ObjectMeta: meta}
	own.Spec.ControlPlaneRef, own.Spec.InfrastructureRef = ref("RKEControlPlane", "servers"), ref("RKECluster", "infra")
	foreign.Spec.ControlPlaneRef, foreign.Spec.InfrastructureRef = ref("KubeadmControlPlane", "servers"), ref("RKECluster", "infra")
	foreign.Spec.InfrastructureRef.APIGroup = "infrastructure.cluster.x-k8s.io"
	machine := &clusterv1.Machine{ObjectMeta: meta}
	machine.Spec.Bootstrap.ConfigRef = ref("RKEBootstrap", "bootstrap")
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme)).WithObjects(own).Build()
	for _, tt := range []struct {
		name string
		got  []ctrl.Request
		want string
	}{
		{"control plane", ClusterToControlPlane(t.Context(), own), "servers"},
		{"control plane of another provider", ClusterToControlPlane(t.Context(), foreign), ""},
		{"control plane of a Machine", ClusterToControlPlane(t.Context(), machine), ""},
		{"infrastructure", ClusterToRKECluster(t.Context(), own), "infra"},
		{"infrastructure of another provider", ClusterToRKECluster(t.Context(), foreign), ""},
		{"bootstrap", MachineToBootstrap(t.Context(), machine), "bootstrap"},
		{"bootstrap of another provider", MachineToBootstrap(t.Context(), &clusterv1.Machine{ObjectMeta: meta}), ""},
		{"label", ByLabel(clusterv1.ClusterNameLabel)(t.Context(), machine), "labeled"},
		{"label that is not set", ByLabel(rkev1.ClusterNameLabel)(t.Context(), machine), ""},
		{"by key", OfCluster(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "c"}, ClusterToControlPlane), "servers"},
		{"by key of none", OfCluster(t.Context(), c, client.ObjectKey{Namespace: "ns", Name: "d"}, ClusterToControlPlane), ""},
		{"without a key", OfCluster(t.Context(), c, client.ObjectKey{}, ClusterToControlPlane), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []ctrl.Request
			if tt.want != "" {
				want = []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: tt.want}}}
			}
			if diff := cmp.Diff(want, tt.got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
