package clusterspec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

func spec() provisioningv1.ClusterSpec {
	config := &provisioningv1.RKEConfig{ETCDSnapshotCreate: &rkev1.ETCDSnapshotCreate{Generation: 1},
		ETCDSnapshotRestore: &rkev1.ETCDSnapshotRestore{Name: "a"}}
	config.AdditionalManifest = "kind: Namespace"
	return provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", RKEConfig: config}
}

func TestFromSnapshot(t *testing.T) {
	original := spec()
	encoded, err := Encode(original)
	if err != nil {
		t.Fatal(err)
	}
	if original.RKEConfig.ETCDSnapshotCreate == nil {
		t.Error("the specification itself was changed")
	}
	metadata, _ := json.Marshal(map[string]string{MetadataKey: encoded, "other": "value"})
	got, err := FromSnapshot(base64.StdEncoding.EncodeToString(metadata))
	if err != nil {
		t.Fatal(err)
	}
	want := spec()
	want.RKEConfig.ETCDSnapshotCreate, want.RKEConfig.ETCDSnapshotRestore = nil, nil
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFromSnapshotWithout(t *testing.T) {
	for _, metadata := range []string{"", base64.StdEncoding.EncodeToString([]byte(`null`)), base64.StdEncoding.EncodeToString([]byte(`{"a":"b"}`))} {
		if got, err := FromSnapshot(metadata); got != nil || err != nil {
			t.Errorf("%q: got %v, %v", metadata, got, err)
		}
	}
}

func TestFromSnapshotInvalid(t *testing.T) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	_, _ = w.Write(bytes.Repeat([]byte(" "), maxSpec+1))
	_ = w.Close()
	for name, value := range map[string]string{
		"no base64": "%", "no gzip": "YQ==", "too large": base64.StdEncoding.EncodeToString(bomb.Bytes()),
	} {
		metadata, _ := json.Marshal(map[string]string{MetadataKey: value})
		if got, err := FromSnapshot(base64.StdEncoding.EncodeToString(metadata)); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if _, err := FromSnapshot("%"); err == nil {
		t.Error("metadata that is no base64 was decoded")
	}
}

// TestOtherFields: fields that no restore reads are not decoded. With 1e-1000000000 instead, that would take hours.
func TestOtherFields(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"kubernetesVersion":"v1.36.3+k3s1","agentEnvVars":[{"name":"A","value":"b"}],"rkeConfig":{},
		"clusterAgentDeploymentCustomization":{"overrideResourceRequirements":{"limits":{"cpu":"1e1.5"}}}}`))
	_ = w.Close()
	got, err := Decode(base64.StdEncoding.EncodeToString(packed.Bytes()))
	want := &provisioningv1.ClusterSpec{KubernetesVersion: "v1.36.3+k3s1", AgentEnvVars: []rkev1.EnvVar{{Name: "A", Value: "b"}},
		RKEConfig: &provisioningv1.RKEConfig{}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}
