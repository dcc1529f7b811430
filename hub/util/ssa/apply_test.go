package ssa

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func TestToUnstructured(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := rkev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	in := &rkev1.RKEControlPlane{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "one", UID: "uid", ResourceVersion: "7", Generation: 3,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
		},
		Spec: rkev1.RKEControlPlaneSpec{
			KubernetesVersion: "v1.36.3+k3s1",
			ClusterConfiguration: rkev1.ClusterConfiguration{
				MachineGlobalConfig: rkev1.GenericMap{Data: map[string]any{"cni": "calico", "max": 3}},
			},
		},
		Status: rkev1.RKEControlPlaneStatus{Ready: true},
	}
	got, err := toUnstructured(scheme, in)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "rke.cattle.io/v1",
		"kind":       "RKEControlPlane",
		"metadata":   map[string]any{"namespace": "ns", "name": "one", "uid": "uid"},
		"spec": map[string]any{
			"kubernetesVersion":   "v1.36.3+k3s1",
			"machineGlobalConfig": map[string]any{"cni": "calico", "max": int64(3)},
		},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
