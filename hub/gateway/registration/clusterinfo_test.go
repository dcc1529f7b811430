package registration

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestClusterInfo: a machine learns the version of its cluster, from whichever field of the RKEControlPlane has it.
func TestClusterInfo(t *testing.T) {
	scheme := fakeclient.Scheme(t, clusterv1.AddToScheme, rkev1.AddToScheme)
	const secret = "0123456789abcdef"
	for name, set := range map[string]func(*rkev1.RKEControlPlane){
		"kubernetesVersion":   func(c *rkev1.RKEControlPlane) { c.Spec.KubernetesVersion = "v1.36.3+k3s1" },
		"that of Cluster API": func(c *rkev1.RKEControlPlane) { c.Spec.Version = "v1.36.3+k3s1" },
	} {
		meta := metav1.ObjectMeta{Namespace: "fleet", Name: "c", UID: "1"}
		cluster := &clusterv1.Cluster{ObjectMeta: meta}
		cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: rkev1.GroupVersion.Group, Kind: "RKEControlPlane",
			Name: "c"}
		controlPlane := &rkev1.RKEControlPlane{ObjectMeta: meta}
		controlPlane.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
		set(controlPlane)
		machine := &clusterv1.Machine{ObjectMeta: meta}
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: meta, Spec: rkev1.RKEBootstrapSpec{ClusterName: "c"}}
		bootstrap.Annotations = map[string]string{rkev1.MachineSecretHashAnnotation: tokens.Hash(secret)}
		reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, controlPlane, machine, bootstrap).
			WithIndex(bootstrap, byMachineSecret, func(o client.Object) []string {
				return []string{o.GetAnnotations()[rkev1.MachineSecretHashAnnotation]}
			}).Build()
		g := &Registrar{Options: Options{Client: reader, Live: reader}}
		got, err := g.ClusterInfo(t.Context(), Request{Headers: http.Header{"X-Cattle-Id": {"one"}, MachineSecretHeader: {secret}}})
		if err != nil || len(got) != 1 || got["kubernetesversion"] != "v1.36.3+k3s1" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
