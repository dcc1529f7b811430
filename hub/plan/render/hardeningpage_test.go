package render

import (
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestHardeningPage: plans are rendered from the Clusters of docs/hardening.md, without a warning.
func TestHardeningPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hardening.md")
	if err != nil {
		t.Fatal(err)
	}
	objects, clusters := Objects{}, 0
	for _, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, text := range strings.Split(block, "---\n") {
			var object struct {
				Kind     string
				Metadata metav1.ObjectMeta
				Data     map[string]string
				Spec     struct {
					KubernetesVersion string
					RKEConfig         rkev1.ClusterConfiguration
				}
			}
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			switch object.Kind {
			case "ConfigMap":
				authorized := object.Metadata.Annotations["rke.cattle.io/object-authorized-for-clusters"]
				files := Object{Data: map[string][]byte{}, AuthorizedFor: authorized}
				for key, content := range object.Data {
					files.Data[key] = []byte(content)
				}
				objects[Reference{Kind: KindConfigMap, Name: object.Metadata.Name}] = files
			case "Cluster":
				clusters++
				for _, roles := range []string{"ec", "w"} {
					in := machineOf(t, object.Spec.KubernetesVersion, "a", roles)
					in.Cluster.Name, in.Cluster.Objects, in.Cluster.Spec.ClusterConfiguration = object.Metadata.Name, objects, object.Spec.RKEConfig
					if in.Machine.ControlPlane {
						in.Machine.Labels = map[string]string{rkev1.ControlPlaneRoleLabel: "true"}
					}
					if _, problems := Plan(in); len(problems) > 0 {
						t.Errorf("%s with the roles %s: %v", object.Spec.KubernetesVersion, roles, problems)
					}
				}
			}
		}
	}
	if clusters != 2 {
		t.Errorf("the page has %d Clusters", clusters)
	}
}
