package crds

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// TestAccepted: an API server takes the definitions, with all their rules: those that can be compiled, and cost no more than it allows.
func TestAccepted(t *testing.T) {
	definitions, err := Definitions(Options{SkipCAPI: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal,
			nil); err != nil {
			t.Fatal(err)
		}
		for _, version := range definition.Spec.Versions {
			if version.Storage {
				internal.Status.StoredVersions = []string{version.Name}
			}
		}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", definition.Name, err)
		}
	}
}
