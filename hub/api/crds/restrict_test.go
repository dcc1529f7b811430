package crds

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestRestrict: what the restricted schemas accept can be decoded, and what cannot be decoded is refused.
func TestRestrict(t *testing.T) {
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"limits": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true,
			Schema: &apiextensionsv1.JSONSchemaProps{XIntOrString: true, Pattern: generatedQuantity}}},
		"numbers": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{XIntOrString: true}}},
		"at":      {Type: "string", Format: "date-time"},
	}}
	restrict(schema)
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		object map[string]any
		valid  bool
	}{
		{map[string]any{"limits": map[string]any{"a": "100m", "b": "1.5Gi", "c": "-.5", "d": "1e3", "e": "2E-9", "f": int64(4294967296)}}, true},
		{map[string]any{"limits": map[string]any{"a": "1e-1000000000"}}, false},
		{map[string]any{"limits": map[string]any{"a": "0e2000000000"}}, false},
		{map[string]any{"limits": map[string]any{"a": "1e1.5"}}, false},
		{map[string]any{"numbers": []any{int64(3), int64(-1), "25%"}}, true},
		{map[string]any{"numbers": []any{int64(3000000000)}}, false},
		{map[string]any{"numbers": []any{int64(-3000000000)}}, false},
		{map[string]any{"at": "2026-01-02T03:04:05Z"}, true},
		{map[string]any{"at": "2026-01-02T03:04:05.123456+02:00"}, true},
		{map[string]any{"at": "2026-01-02t03:04:05z"}, false},
		{map[string]any{"at": "2026-01-02T03:04:05+99:00"}, false},
		{map[string]any{"at": "2026-01-02T03:04:05ZT"}, false},
	} {
		if got := len(validation.ValidateCustomResource(nil, tt.object, validator)) == 0; got != tt.valid {
			t.Errorf("%v: valid %v", tt.object, got)
		}
		if !tt.valid {
			continue // decoding it might take hours
		}
		raw, err := json.Marshal(tt.object)
		if err != nil {
			t.Fatal(err)
		}
		var into struct {
			Limits  map[string]resource.Quantity
			Numbers []intstr.IntOrString
			At      metav1.Time
		}
		if err := json.Unmarshal(raw, &into); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// TestRestricted: no definition has a schema that was left as it is.
func TestRestricted(t *testing.T) {
	all, err := Definitions(Options{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	generated, err := json.Marshal(generatedQuantity)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, generated) {
		t.Error("the pattern of controller-gen is still there")
	}
	again := func(schema *apiextensionsv1.JSONSchemaProps) string {
		restrict(schema)
		changed, _ := json.Marshal(schema)
		return string(changed)
	}
	for _, definition := range all {
		for _, version := range definition.Spec.Versions {
			before, _ := json.Marshal(version.Schema.OpenAPIV3Schema)
			if again(version.Schema.OpenAPIV3Schema.DeepCopy()) != string(before) {
				t.Errorf("%s %s is not restricted", definition.Name, version.Name)
			}
		}
	}
}

// TestAppliedSpec: a spec that was accepted before a rule was added can be written to the status.
func TestAppliedSpec(t *testing.T) {
	definition := definitions(t, Options{SkipCAPI: true})["rkecontrolplanes.rke.cattle.io"]
	for _, version := range definition.Spec.Versions {
		schema := version.Schema.OpenAPIV3Schema
		for name, tt := range map[string]struct {
			of    apiextensionsv1.JSONSchemaProps
			rules bool
		}{"spec": {schema.Properties["spec"], true}, "status.appliedSpec": {schema.Properties["status"].Properties["appliedSpec"], false}} {
			raw, err := json.Marshal(tt.of)
			if err != nil {
				t.Fatal(err)
			}
			if has := bytes.Contains(raw, []byte("x-kubernetes-validations")); has != tt.rules || !bytes.Contains(raw, []byte("dataDirectories")) {
				t.Errorf("%s of %s has rules: %v", name, version.Name, has)
			}
		}
	}
}

// TestTolerate: conditions as Rancher leaves them keep no status from being written, which has them with an empty reason and no time.
func TestTolerate(t *testing.T) {
	for name, definition := range definitions(t, Options{SkipCAPI: true}) {
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		conditions, ok := schema.Properties["status"].Properties["conditions"]
		if !ok {
			continue
		}
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&conditions, internal, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		left := []any{
			map[string]any{"type": "SecretsMigrated", "status": "True", "reason": "", "message": "", "lastTransitionTime": nil},
			map[string]any{"type": "Updated", "status": "True"},
			map[string]any{"type": "Ready", "status": "False", "reason": "NotReady", "message": "no", "lastTransitionTime": "2026-01-02T03:04:05Z"},
		}
		for _, err := range validation.ValidateCustomResource(nil, left, validator) {
			t.Errorf("%s: %v", name, err)
		}
		for what, bad := range map[string]map[string]any{"no type": {"status": "True"}, "no status": {"type": "Ready"}} {
			if len(validation.ValidateCustomResource(nil, []any{bad}, validator)) == 0 {
				t.Errorf("%s: a condition with %s is valid", name, what)
			}
		}
	}
}
