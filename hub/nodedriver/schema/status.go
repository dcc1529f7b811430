package schema

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// machineColumns are what kubectl get shows.
var machineColumns = []apiextensionsv1.CustomResourceColumnDefinition{
	{Name: "Cluster", Type: "string", JSONPath: `.metadata.labels['cluster\.x-k8s\.io/cluster-name']`},
	{Name: "Provisioned", Type: "boolean", JSONPath: ".status.initialization.provisioned"},
	{Name: "ProviderID", Type: "string", Priority: 1, JSONPath: ".spec.providerID"},
	{Name: "Message", Type: "string", Priority: 1, JSONPath: ".status.conditions[?(@.type=='Ready')].message"},
	{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
}

// machineStatus is the status of an infrastructure machine by Cluster API's contract.
func machineStatus() apiextensionsv1.JSONSchemaProps {
	str := apiextensionsv1.JSONSchemaProps{Type: "string"}
	condition := object("", props{
		"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": {Type: "string", Format: "date-time"},
		"observedGeneration": {Type: "integer", Format: "int64"},
	})
	condition.Required = []string{"type", "status"} // those that Rancher has left have no reason or time
	address := object("", props{"type": str, "address": str})
	address.Required = []string{"type", "address"}
	return object("Status is what the hub found.", props{
		"conditions": {
			Type: "array", Description: "Conditions: Ready, Created, NodeFound, Deleted, Paused.", XListType: new("map"),
			XListMapKeys: []string{"type"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition},
		},
		"initialization": object("Initialization holds what Cluster API waits for.", props{
			"provisioned": {Type: "boolean", Description: "Provisioned is true once the machine's Node was seen."},
		}),
		"addresses": {
			Type: "array", Description: "Addresses are those that the driver told, later those of the Node.",
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &address},
		},
	})
}
