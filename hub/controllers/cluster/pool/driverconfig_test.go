package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// The template of a machine configuration: another credential, and fields that another version of the driver adds, replace no machines;
// another value does.
func TestTemplateOfConfig(t *testing.T) {
	cluster, p := &provisioningv1.Cluster{}, &provisioningv1.RKEMachinePool{Name: "workers"}
	cluster.Name, cluster.Namespace = "one", "ns"
	cluster.Spec.CloudCredentialSecretName = "cattle-global-data:cc-a"
	config := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LabConfig", "size": "2", "tags": nil,
		"metadata": map[string]any{"name": "machines", "namespace": "ns", "uid": "u", "generation": int64(1)},
	}}
	clone := func() *unstructured.Unstructured {
		out, err := Clone(cluster, p, TemplateOfConfig(cluster, p, "lab", config))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := clone()
	want := map[string]any{"template": map[string]any{"spec": map[string]any{
		"size": "2", "common": map[string]any{"cloudCredentialSecretName": "cattle-global-data:cc-a"},
	}}}
	if diff := cmp.Diff(want, first.Object["spec"]); diff != "" || first.GetKind() != "LabMachineTemplate" {
		t.Errorf("%s: %s", first.GetKind(), diff)
	}
	annotations := first.GetAnnotations()
	if annotations["rke.cattle.io/cloned-from-kind"] != "LabConfig" || annotations["rke.cattle.io/cloned-from-name"] != "machines" {
		t.Errorf("annotations %v", annotations)
	}

	p.CloudCredentialSecretName = "own"
	if other := clone(); other.GetName() != first.GetName() || Common(other)["cloudCredentialSecretName"] != "own" {
		t.Errorf("another credential makes %s with %v of %s", other.GetName(), Common(other), first.GetName())
	}
	config.Object["zone"] = "north"
	if !UpToDate(first, TemplateOfConfig(cluster, p, "lab", config)) {
		t.Error("a default of another version of the driver replaces machines")
	}
	config.Object["size"] = "4"
	config.SetGeneration(2)
	if UpToDate(first, TemplateOfConfig(cluster, p, "lab", config)) || clone().GetName() == first.GetName() {
		t.Error("another size replaces no machines")
	}
}
