package ownership

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestKubeconfigOfCluster: a kubeconfig Secret that was written for another cluster of the same name does not belong to a Cluster API
// Cluster, whatever owner a tenant gives to that. Owners that are no clusters do not matter.
func TestKubeconfigOfCluster(t *testing.T) {
	created := &provisioningv1.Cluster{ObjectMeta: meta("c", "now"), Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	imported := &provisioningv1.Cluster{ObjectMeta: meta("c", "now")}
	owner := func(apiVersion, kind, name string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}}
	}
	rancher := func(name string, uid types.UID) []metav1.OwnerReference {
		return owner("provisioning.cattle.io/v1", "Cluster", name, uid)
	}
	plane := func(name string) []metav1.OwnerReference {
		return owner("rke.cattle.io/v1", "RKEControlPlane", name, "before-a-move")
	}
	for _, tt := range []struct {
		name string
		// exists is the Cluster of provisioning.cattle.io, nil for none; cluster and secret have the owners of both.
		exists          *provisioningv1.Cluster
		cluster, secret []metav1.OwnerReference
		provider        string // of the control plane; empty for the hub
		refused         string // what the message names; empty for none
	}{
		{name: "no owner"},
		{name: "its control plane", secret: plane("plane")},
		{name: "another control plane", secret: plane("other"), refused: "RKEControlPlane other of rke.cattle.io"},
		{name: "control plane of the hub, of a cluster with another provider", secret: plane("plane"),
			provider: "controlplane.cluster.x-k8s.io", refused: "RKEControlPlane plane of rke.cattle.io"},
		{name: "imported Cluster", exists: imported, secret: rancher("c", "now"), refused: "Cluster c of provisioning.cattle.io"},
		{name: "imported Cluster that a tenant made an owner", exists: imported, cluster: rancher("c", "now"), secret: rancher("c", "now"),
			refused: "Cluster c of provisioning.cattle.io"},
		{name: "earlier Cluster of the name", exists: created, cluster: rancher("c", "now"), secret: rancher("c", "before"),
			refused: "Cluster c of provisioning.cattle.io"},
		{name: "Cluster that is gone", cluster: rancher("c", "now"), secret: rancher("c", "now"), refused: "Cluster c of provisioning.cattle.io"},
		{name: "Cluster that it was created for", exists: created, cluster: rancher("c", "now"), secret: rancher("c", "now")},
		{name: "Cluster that it was created for, before a move", exists: created, cluster: rancher("c", "before"), secret: rancher("c", "now")},
		{name: "Cluster of another name", exists: created, cluster: rancher("c", "now"), secret: append(plane("plane"), rancher("d", "d")...),
			refused: "Cluster d of provisioning.cattle.io"},
		{name: "itself", secret: owner("cluster.x-k8s.io/v1beta2", "Cluster", "c", "u")},
		{name: "another program", secret: owner("external-secrets.io/v1", "ExternalSecret", "x", "u")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster := &clusterv1.Cluster{ObjectMeta: meta("c", "u", tt.cluster...),
				Spec: clusterv1.ClusterSpec{ControlPlaneRef: ref("RKEControlPlane", "plane")}}
			if tt.provider != "" {
				cluster.Spec.ControlPlaneRef.APIGroup = tt.provider
			}
			from := reader(t)
			if tt.exists != nil {
				from = reader(t, tt.exists.DeepCopy())
			}
			refusal, err := KubeconfigOfCluster(t.Context(), from, &corev1.Secret{ObjectMeta: meta("c-kubeconfig", "s", tt.secret...)}, cluster)
			if err != nil {
				t.Fatal(err)
			}
			if tt.refused == "" {
				if refusal != nil {
					t.Errorf("refused: %s", refusal.Message)
				}
				return
			}
			if want := "kubeconfig Secret c-kubeconfig names " + tt.refused; refusal == nil || !strings.Contains(refusal.Message, want) {
				t.Errorf("got %+v, want %q", refusal, want)
			}
		})
	}
}
