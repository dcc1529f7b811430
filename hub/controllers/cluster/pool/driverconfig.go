package pool

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// commonField is the field of a node driver's machines that is not part of what they are made from: it changes without replacing them.
const commonField = "common"

// TemplateOfConfig returns the machine template for the machine configuration of a node driver, with the identity of the configuration.
func TemplateOfConfig(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool, driver string,
	config *unstructured.Unstructured) *unstructured.Unstructured {
	spec := map[string]any{}
	for field, value := range config.Object {
		switch field {
		case "apiVersion", "kind", "metadata":
		default:
			if value != nil {
				spec[field] = value
			}
		}
	}
	if credential := Credential(cluster, p); credential != "" {
		spec[commonField] = map[string]any{"cloudCredentialSecretName": credential}
	}
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	template.SetGroupVersionKind(schema.TemplateKind(driver))
	template.SetNamespace(config.GetNamespace())
	template.SetName(config.GetName())
	template.SetUID(config.GetUID())
	template.SetGeneration(config.GetGeneration())
	return template
}

// Credential is the name of the cloud credential of a pool.
func Credential(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) string {
	if p.CloudCredentialSecretName != "" {
		return p.CloudCredentialSecretName
	}
	return cluster.Spec.CloudCredentialSecretName
}

// Common is the common part of a node driver's machine template; nil where it has none.
func Common(template *unstructured.Unstructured) map[string]any {
	common, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec", commonField)
	if err != nil {
		return nil
	}
	return common
}

// content is what machines are made from: the whole spec of a template, of node drivers without the common part.
func content(template *unstructured.Unstructured) any {
	if schema.DriverOfTemplate(template.GroupVersionKind().GroupKind()) == "" {
		return template.Object["spec"]
	}
	spec, _, err := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	if err != nil {
		return template.Object["spec"]
	}
	maps.DeleteFunc(spec, func(field string, value any) bool { return field == commonField || value == nil })
	return spec
}
