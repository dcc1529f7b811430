package agentsession

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// TestTunnelKey: the sessions of a machine are those of the management Cluster of its own cluster, not of a Cluster that only has the name
// of that.
func TestTunnelKey(t *testing.T) {
	key := client.ObjectKey{Namespace: "ns", Name: "prod"}
	management := func(name string) *managementv3.Cluster {
		return &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ownership.Labels(key)}}
	}
	named := func(management string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", OwnerReferences: owners,
			Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: management}}
	}
	cluster := &provisioningv1.Cluster{ObjectMeta: named("c-m-a"), Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	imported := &provisioningv1.Cluster{ObjectMeta: named("c-m-a")}
	spec := clusterv1.ClusterSpec{ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
		APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane", Name: key.Name}}
	made := &clusterv1.Cluster{ObjectMeta: named("", metav1.OwnerReference{APIVersion: provisioningv1.GroupVersion.String(), Kind: "Cluster",
		Name: key.Name, UID: "u"}), Spec: spec}
	native := &clusterv1.Cluster{ObjectMeta: named(""), Spec: spec}
	plane := &rkev1.RKEControlPlane{ObjectMeta: named("c-m-b", metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(),
		Kind: "Cluster", Name: key.Name, UID: "u"})}
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m"}}
	machine.Spec.ClusterName = key.Name
	for name, tc := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"its own Cluster":             {[]client.Object{management("c-m-a"), cluster, made}, "c-m-a:m"},
		"a Cluster of the name":       {[]client.Object{management("c-m-a"), management("c-m-b"), cluster, native, plane}, "c-m-b:m"},
		"an imported one of the name": {[]client.Object{management("c-m-a"), management("c-m-b"), imported, native, plane}, "c-m-b:m"},
	} {
		from := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, clusterv1.AddToScheme, managementv3.AddToScheme,
			provisioningv1.AddToScheme, rkev1.AddToScheme)).WithObjects(tc.objects...).
			WithIndex(&managementv3.Cluster{}, byOwner, func(o client.Object) []string { return []string{ownership.Key(o).String()} }).Build()
		if got, err := TunnelKey(t.Context(), from, machine); err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}
