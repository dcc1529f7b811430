package move

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// TestCleanup: only what is moved to another hub is recorded, under the name of its cluster.
func TestCleanup(t *testing.T) {
	leaving := map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		cluster     string
		want        string
	}{
		{name: "deleted", cluster: "cluster"},
		{name: "moved", annotations: leaving, cluster: "cluster", want: "cluster"},
		{name: "stands for no cluster", annotations: leaving},
	} {
		t.Run(tt.name, func(t *testing.T) {
			controlPlane := &rkev1.RKEControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "servers", Annotations: tt.annotations}}
			m := Cleanup{ClusterName: func(client.Object) string { return tt.cluster }}
			if !m.Predicate().Delete(event.DeleteEvent{Object: controlPlane}) {
				t.Error("the deletion of an object does not reach the controller")
			}
			got, _ := m.moved.Load(client.ObjectKey{Namespace: "ns", Name: "servers"})
			if name, _ := got.(string); name != tt.want {
				t.Errorf("the moved cluster is %q, want %q", name, tt.want)
			}
		})
	}
}

// TestRun: the management Cluster of a cluster that was moved is deleted. That of a cluster that is still here stays: the label by which an
// RKEControlPlane names its cluster may be anybody's, and so may the annotation of a move.
func TestRun(t *testing.T) {
	const name = "c-m-abcdefgh"
	key, gone := client.ObjectKey{Namespace: "ns", Name: "prod"}, client.ObjectKey{Namespace: "ns", Name: "x"}
	named := map[string]string{rkev1.ManagementClusterNameAnnotation: name}
	meta := func(name string, annotations map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", Annotations: annotations}
	}
	capi := &clusterv1.Cluster{ObjectMeta: meta("prod", nil)}
	capi.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
		Name: "servers"}
	servers := &rkev1.RKEControlPlane{ObjectMeta: meta("servers", named)}
	servers.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "prod", UID: "uid"}}
	for _, tt := range []struct {
		name  string
		here  []client.Object
		stays bool
	}{
		{name: "moved"},
		{name: "moved, its Cluster API Cluster not yet", here: []client.Object{capi}},
		{name: "still here", here: []client.Object{&provisioningv1.Cluster{ObjectMeta: meta("prod", named)}}, stays: true},
		{name: "still here, without a Cluster of provisioning.cattle.io", here: []client.Object{capi, servers}, stays: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "m", Labels: ownership.Labels(key)}}
			scheme := fakeclient.Scheme(t, provisioningv1.AddToScheme, managementv3.AddToScheme, rkev1.AddToScheme, clusterv1.AddToScheme)
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management).WithObjects(tt.here...).Build()
			m := Cleanup{Client: c, Live: c}
			m.moved.Store(gone, "prod")
			if err := m.Run(t.Context(), gone, &rkev1.RKEControlPlane{}); err != nil {
				t.Fatal(err)
			}
			stays, err := objects.Get(t.Context(), c, client.ObjectKey{Name: name}, management)
			if err != nil || stays != tt.stays {
				t.Errorf("it stays: %v, %v", stays, err)
			}
		})
	}
}
