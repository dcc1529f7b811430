package crds

import (
	"context"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeDefinitions records what is written.
type fakeDefinitions struct {
	apiextensions.CustomResourceDefinitionInterface
	stored  *apiextensionsv1.CustomResourceDefinition
	patches []string
}

func (f *fakeDefinitions) Get(context.Context, string, metav1.GetOptions) (*apiextensionsv1.CustomResourceDefinition, error) {
	return f.stored, nil
}

func (f *fakeDefinitions) Patch(
	_ context.Context, _ string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string,
) (*apiextensionsv1.CustomResourceDefinition, error) {
	f.patches = append(f.patches, string(kind)+" "+string(data))
	return f.stored, nil
}

// TestNewerDefinitions: an older hub, such as a replica that restarts during an upgrade, leaves the definitions of a newer one.
func TestNewerDefinitions(t *testing.T) {
	wanted := func(ca string) *apiextensionsv1.CustomResourceDefinition {
		url := "https://hub.example.com:9443"
		target := &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: []byte(ca)}
		return definitions(t, Options{Conversion: target})["machines.cluster.x-k8s.io"]
	}
	const apply, merge = string(types.ApplyPatchType), string(types.MergePatchType)
	for name, tc := range map[string]struct {
		own, theirs, ca string
		kept            bool
		patch, content  string
	}{
		"older":                        {own: "v1.2.9", theirs: "v1.3.0", kept: true},
		"older, of another major":      {own: "v1.2.9", theirs: "v2.0.0", kept: true},
		"older, with another CA":       {own: "v1.2.9", theirs: "v1.3.0", ca: "new", kept: true, patch: merge, content: `"caBundle":"bmV3"`},
		"the same, changed by others":  {own: "v1.3.0", theirs: "v1.3.0", patch: apply, content: `"` + versionAnnotation + `":"v1.3.0"`},
		"newer":                        {own: "v1.10.0", theirs: "v1.9.0", patch: apply, content: `"` + versionAnnotation + `":"v1.10.0"`},
		"after one without versions":   {own: "v1.3.0", patch: apply, content: `"` + versionAnnotation + `":"v1.3.0"`},
		"a candidate":                  {own: "v1.3.0-rc.1", theirs: "v1.3.0", patch: apply},
		"a build after the release":    {own: "v1.3.0-4-gabcdef1", theirs: "v1.3.0", patch: apply},
		"a build without a release":    {own: "0.0.0+abcdef1", theirs: "v1.3.0", patch: apply},
		"a build of an unknown commit": {own: "7034af3d", theirs: "v1.3.0", patch: apply},
		"the stamp is no version":      {own: "v1.3.0", theirs: "latest", patch: apply},
	} {
		there := wanted("old")
		there.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "another one"
		metav1.SetMetaDataAnnotation(&there.ObjectMeta, versionAnnotation, tc.theirs)
		there.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		if tc.ca == "" {
			tc.ca = "old"
		}
		fake := &fakeDefinitions{stored: there}
		kept, err := install(t.Context(), fake, there, wanted(tc.ca), tc.own)
		if err != nil || kept != tc.kept {
			t.Errorf("%s: kept %t, want %t (%v)", name, kept, tc.kept, err)
		}
		written := strings.Join(fake.patches, "\n")
		if tc.patch == "" && written != "" || !strings.HasPrefix(written, tc.patch) || !strings.Contains(written, tc.content) {
			t.Errorf("%s: want a patch of type %q with %q; written is %.300s", name, tc.patch, tc.content, written)
		}
		if tc.patch == apply && tc.content == "" && strings.Contains(written, versionAnnotation) != (released(tc.own) != nil) {
			t.Errorf("%s: wrong version in %.300s", name, written)
		}
	}
}

// TestSameDefinition: a hub that finds its own definition writes nothing, whatever version has applied it.
func TestSameDefinition(t *testing.T) {
	there := definitions(t, Options{})["clusters.provisioning.cattle.io"]
	if err := setHash(there); err != nil {
		t.Fatal(err)
	}
	there.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	for _, theirs := range []string{"", "v1.2.0", "v1.3.0", "v1.4.0"} {
		metav1.SetMetaDataAnnotation(&there.ObjectMeta, versionAnnotation, theirs)
		fake := &fakeDefinitions{stored: there}
		want := definitions(t, Options{})["clusters.provisioning.cattle.io"]
		if kept, err := install(t.Context(), fake, there, want, "v1.3.0"); err != nil || kept || len(fake.patches) != 0 {
			t.Errorf("applied by %q: kept %t, %d patches (%v)", theirs, kept, len(fake.patches), err)
		}
	}
}
