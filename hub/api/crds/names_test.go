package crds

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// rulesOf returns the schema of the first version of a definition, and what evaluates its rules.
func rulesOf(t *testing.T, definition string) (*schema.Structural, *cel.Validator) {
	t.Helper()
	internal, first := &apiextensions.JSONSchemaProps{}, definitions(t, Options{SkipCAPI: true})[definition].Spec.Versions[0]
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(first.Schema.OpenAPIV3Schema, internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return structural, cel.NewValidator(structural, true, celconfig.PerCallLimit)
}

// TestNamesOfRancher: new Clusters have no names that the hub does not manage, and those that Rancher has left with such a name can be
// written, so that their finalizers can be removed.
func TestNamesOfRancher(t *testing.T) {
	structural, rules := rulesOf(t, "clusters.provisioning.cattle.io")
	object := func(name string, finalizers ...any) map[string]any {
		return map[string]any{"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
			"metadata": map[string]any{"name": name, "namespace": "fleet", "finalizers": finalizers}}
	}
	for name, refused := range map[string]bool{"one": false, "local": true, "c-abcde": true, "c-m-abcdefgh": true, "a": true} {
		errs, _ := rules.Validate(t.Context(), nil, structural, object(name), nil, celconfig.RuntimeCELCostBudget)
		if (len(errs) > 0) != refused {
			t.Errorf("%s, created: %v", name, errs)
		}
		errs, _ = rules.Validate(t.Context(), nil, structural, object(name),
			object(name, "wrangler.cattle.io/provisioning-cluster-remove"), celconfig.RuntimeCELCostBudget)
		if len(errs) > 0 {
			t.Errorf("%s, without a finalizer: %v", name, errs)
		}
	}
}
