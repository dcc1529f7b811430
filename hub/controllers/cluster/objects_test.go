package cluster

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func testCluster() *provisioningv1.Cluster {
	return &provisioningv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet-default", Name: "one", UID: "0001",
			Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: "c-m-abcdefgh"}},
		Spec: provisioningv1.ClusterSpec{
			KubernetesVersion: "v1.36.3+k3s1",
			AgentEnvVars:      []rkev1.EnvVar{{Name: "A", Value: "b"}},
			RKEConfig: &provisioningv1.RKEConfig{
				ClusterConfiguration: rkev1.ClusterConfiguration{MachineGlobalConfig: rkev1.GenericMap{Data: map[string]any{"a": "b"}}},
				ETCDSnapshotCreate:   &rkev1.ETCDSnapshotCreate{Generation: 3},
				RotateCertificates:   &rkev1.RotateCertificates{Generation: 4},
			},
		},
	}
}

func TestCAPIClusterInfrastructure(t *testing.T) {
	own, foreign := testCluster(), testCluster()
	foreign.Spec.RKEConfig.InfrastructureRef = &provisioningv1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1",
		Kind: "VSphereCluster", Name: "v"}
	for name, tt := range map[string]struct {
		cluster *provisioningv1.Cluster
		want    clusterv1.ContractVersionedObjectReference
	}{
		"own": {own, clusterv1.ContractVersionedObjectReference{APIGroup: "rke.cattle.io", Kind: "RKECluster", Name: "one"}},
		"foreign": {foreign, clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "VSphereCluster",
			Name: "v"}},
	} {
		if diff := cmp.Diff(tt.want, capiCluster(tt.cluster).Spec.InfrastructureRef); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestControlPlane(t *testing.T) {
	cluster := testCluster()
	got, err := ControlPlane(cluster)
	if err != nil {
		t.Fatal(err)
	}
	want := rkev1.RKEControlPlaneSpec{
		ClusterConfiguration:  cluster.Spec.RKEConfig.ClusterConfiguration,
		AgentEnvVars:          cluster.Spec.AgentEnvVars,
		ETCDSnapshotCreate:    &rkev1.ETCDSnapshotCreate{Generation: 3},
		RotateCertificates:    &rkev1.RotateCertificates{Generation: 4},
		KubernetesVersion:     "v1.36.3+k3s1",
		ClusterName:           "one",
		ManagementClusterName: "c-m-abcdefgh",
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	var kept provisioningv1.ClusterSpec
	unpack(t, got.Annotations[rkev1.ClusterSpecAnnotation], &kept)
	if kept.KubernetesVersion != "v1.36.3+k3s1" || kept.RKEConfig == nil {
		t.Errorf("the annotation lost the spec: %+v", kept)
	}
	if kept.RKEConfig.ETCDSnapshotCreate != nil || kept.RKEConfig.RotateCertificates != nil {
		t.Error("the annotation keeps what is to be done once")
	}
	again, err := ControlPlane(testCluster())
	if err != nil {
		t.Fatal(err)
	}
	if again.Annotations[rkev1.ClusterSpecAnnotation] != got.Annotations[rkev1.ClusterSpecAnnotation] {
		t.Error("the annotation differs from one time to another")
	}
}

func unpack(t *testing.T, packed string, into any) {
	t.Helper()
	reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(reader).Decode(into); err != nil {
		t.Fatal(err)
	}
}
