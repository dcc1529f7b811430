package schema

import (
	"fmt"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

// TestAccepted: an API server takes the definitions of a driver with many more flags than any has: their rules cost no more than it allows.
func TestAccepted(t *testing.T) {
	var many []plugin.Flag
	for i := range 60 {
		for _, flag := range flags() {
			flag.Name += fmt.Sprint("-", i)
			many = append(many, flag)
		}
	}
	fields, err := Fields("lab", many, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range Definitions("nd-1", "lab", fields) {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal,
			nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{Version}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %v", definition.Name, err)
		}
	}
}
