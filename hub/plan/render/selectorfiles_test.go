package render

import (
	"fmt"
	"strings"
	"testing"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestFileSourceWithoutItems: a source of which nothing is written is named, and does not hold back the plan.
func TestFileSourceWithoutItems(t *testing.T) {
	in := machineOf(t, k3s, "a", "w")
	in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{{
		ConfigMap: &rkev1.K8sObjectFileSource{Name: "map"},
	}}}}
	in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"k": []byte("v")}, AuthorizedFor: "prod"}}
	_, problems := Plan(in)
	const want = "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].configMap.items: is empty, so that no file is written of ConfigMap"
	if problems.Err() != nil || !strings.Contains(fmt.Sprint(problems), want) {
		t.Errorf("got %v, want %s", problems, want)
	}
}

// TestInvalidPaths: what no agent could write is reported with the field of the specification, and not with that of a plan.
func TestInvalidPaths(t *testing.T) {
	const item = "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].configMap.items[0]"
	for name, tc := range map[string]struct {
		path    string
		mode    rkev1.FilePermissions
		dataDir string
		want    string
	}{
		"valid":         {"/etc/motd", "0644", "/data/k3s", ""},
		"relative path": {"etc/motd", "", "", item + `.path: must be absolute, got "etc/motd"`},
		"no path":       {"", "", "", item + ".path: must not be empty"},
		"permissions":   {"/etc/motd", "17777", "", item + ".permissions: must be at most 07777"},
		"data-dir":      {"/etc/motd", "", "data/k3s", `spec.rkeConfig.machineGlobalConfig.data-dir: must be an absolute path, got "data/k3s"`},
	} {
		in := machineOf(t, k3s, "a", "w")
		in.Cluster.Spec.MachineGlobalConfig.Data = map[string]any{"data-dir": tc.dataDir}
		in.Cluster.Spec.MachineSelectorFiles = []rkev1.RKEProvisioningFiles{{FileSources: []rkev1.ProvisioningFileSource{{
			ConfigMap: &rkev1.K8sObjectFileSource{Name: "map", Items: []rkev1.KeyToPath{{Key: "k", Path: tc.path, Permissions: tc.mode}}},
		}}}}
		in.Cluster.Objects = Objects{{Kind: KindConfigMap, Name: "map"}: {Data: map[string][]byte{"k": []byte("v")}, AuthorizedFor: "prod"}}
		_, problems := Plan(in)
		if err := problems.Err(); (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}
