package crds

import (
	"math"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	// generatedQuantity is what controller-gen writes for a resource.Quantity. It lets in exponents that are none, such as 1e1.5, and those
	// with which it takes hours to parse the text, such as 1e-1000000000.
	generatedQuantity = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	quantity          = `^(\+|-)?(([0-9]{1,40}(\.[0-9]{0,40})?)|(\.[0-9]{1,40}))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
	// dateTime is what a metav1.Time reads. The format date-time lets more in, such as a lower-case t and z, and time zones of 99 hours.
	dateTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
)

// restrict has the API server refuse texts and numbers that the hub cannot decode. One object with such a value would keep the hub from
// reading all objects of its kind, those of all users.
func restrict(schema *apiextensionsv1.JSONSchemaProps) {
	switch {
	case schema.Pattern == generatedQuantity:
		schema.Pattern = quantity
	case schema.XIntOrString && schema.Pattern == "": // an intstr.IntOrString holds an int32
		if schema.Minimum == nil {
			schema.Minimum = new(float64(math.MinInt32))
		}
		if schema.Maximum == nil {
			schema.Maximum = new(float64(math.MaxInt32))
		}
	case schema.Format == "date-time" && schema.Pattern == "":
		schema.Pattern = dateTime
	}
	for name, property := range schema.Properties {
		restrict(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		restrict(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		restrict(schema.AdditionalProperties.Schema)
	}
}

// dropRules removes the rules of a schema and of all below it. Texts and numbers that the hub cannot decode are still refused.
func dropRules(schema *apiextensionsv1.JSONSchemaProps) {
	schema.XValidations = nil
	for name, property := range schema.Properties {
		dropRules(&property)
		schema.Properties[name] = property
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		dropRules(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		dropRules(schema.AdditionalProperties.Schema)
	}
}

// tolerate has the API server take what is in a status because it is elsewhere: the spec that was applied, and conditions of other writers.
//
// A spec that an earlier version of the definition has accepted stays as it is, since the API server evaluates new rules only for what has
// changed. In the status of an object that had none so far, all of it is new: no status of the object could be written.
//
// It has the API server take the conditions that other writers of these kinds have left in a status: those of Rancher have no reason,
// no message or no time. Each write of a status has all conditions of the object, and would be refused because of theirs.
func tolerate(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		validation := crd.Spec.Versions[i].Schema
		if validation == nil || validation.OpenAPIV3Schema == nil {
			continue
		}
		status := validation.OpenAPIV3Schema.Properties["status"]
		if applied, found := status.Properties["appliedSpec"]; found {
			dropRules(&applied)
			status.Properties["appliedSpec"] = applied
		}
		items := status.Properties["conditions"].Items
		if items == nil || items.Schema == nil {
			continue
		}
		reason, at := items.Schema.Properties["reason"], items.Schema.Properties["lastTransitionTime"]
		reason.MinLength, reason.Pattern = nil, ""
		at.Nullable = true
		items.Schema.Properties["reason"], items.Schema.Properties["lastTransitionTime"] = reason, at
		items.Schema.Required = []string{"status", "type"}
	}
}
