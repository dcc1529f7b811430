package dryrun

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const clusterText = "apiVersion: provisioning.cattle.io/v1\nkind: Cluster\nmetadata:\n  name: demo\n  namespace: ns\nspec: {}\n"

func TestReadManifest(t *testing.T) {
	tests := []struct {
		name, manifest, want, err string
		warnings                  []string
	}{
		{name: "a Cluster", manifest: clusterText, want: "Cluster demo"},
		{name: "a Cluster in JSON", manifest: `{"apiVersion":"provisioning.cattle.io/v1","kind":"Cluster","metadata":{"name":"demo","namespace":"ns"}}`, want: "Cluster demo"},
		{name: "an RKEControlPlane", manifest: "apiVersion: rke.cattle.io/v1\nkind: RKEControlPlane\nmetadata: {name: cp, namespace: ns}\n",
			want: "RKEControlPlane cp"},
		{
			name: "among others", manifest: "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n" + clusterText + "---\n",
			want: "Cluster demo", warnings: []string{"Secret s of the manifest is not looked at"},
		},
		{name: "two", manifest: clusterText + "---\n" + clusterText,
			err: "the manifest has two clusters, Cluster demo and Cluster demo: give one at a time"},
		{
			name: "the Cluster of Cluster API", manifest: strings.Replace(clusterText, "provisioning.cattle.io/v1", "cluster.x-k8s.io/v1beta2", 1),
			err: "the manifest has no Cluster of provisioning.cattle.io/v1 and no RKEControlPlane of rke.cattle.io/v1",
		},
		{name: "nothing", err: "the manifest has no Cluster of provisioning.cattle.io/v1 and no RKEControlPlane of rke.cattle.io/v1"},
		{name: "no namespace", manifest: strings.Replace(clusterText, "  namespace: ns\n", "", 1),
			err: "metadata.namespace of the manifest is empty: write the namespace of the cluster there"},
		{name: "no name", manifest: strings.Replace(clusterText, "  name: demo\n", "", 1),
			err: "metadata.name of the manifest is empty: write the name of the cluster there"},
		{name: "no manifest", manifest: "{", err: "the manifest is neither YAML nor JSON: "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object, warnings, err := readManifest([]byte(test.manifest))
			if test.err != "" || err != nil {
				if err == nil || test.err == "" || !strings.HasPrefix(err.Error(), test.err) {
					t.Fatalf("got error %v, want %q", err, test.err)
				}
				return
			}
			if got := object.GetKind() + " " + object.GetName(); got != test.want {
				t.Errorf("found %s, want %s", got, test.want)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings: -want +got:\n%s", diff)
			}
		})
	}
}

// TestReplaced: a manifest that is the whole object takes fields away, and keeps what others have written beside it.
func TestReplaced(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{"hub": "x", "own": "1"}},
		"spec":     map[string]any{"a": "1", "b": "2"}, "status": map[string]any{"s": "1"},
	}}
	manifest := clean(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"resourceVersion": "5", "uid": "u", "annotations": map[string]any{"own": "2"}},
		"spec":     map[string]any{"a": "3"}, "status": map[string]any{"s": "2"},
	}})
	want := map[string]any{
		"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]any{"hub": "x", "own": "2"}},
		"spec":     map[string]any{"a": "3"}, "status": map[string]any{"s": "1"},
	}
	got := replaced(live, manifest).Object
	delete(got["metadata"].(map[string]any), "labels")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
