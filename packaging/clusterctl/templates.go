package clusterctl

import (
	"bytes"
	"embed"
	"fmt"
	"text/template"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.ParseFS(templateFiles, "templates/*.yaml"))

// machineTemplate is a template of machines that a cluster with machines of an infrastructure provider has.
type machineTemplate struct{ Name, Variable, Profile string }

// flavors are the templates of clusters by the name of their flavor; custom machines are the one without a name. kinds are those of the
// infrastructure provider.
var flavors = []struct{ name, file, cluster, machine string }{
	{file: "custom.yaml"},
	{name: "dev", file: "dev.yaml", cluster: "DevCluster", machine: "DevMachineTemplate"},
	{name: "vsphere", file: "vsphere.yaml", cluster: "VSphereCluster", machine: "VSphereMachineTemplate"},
	{name: "aws", file: "aws.yaml", cluster: "AWSCluster", machine: "AWSMachineTemplate"},
	{name: "azure", file: "azure.yaml", cluster: "AzureCluster", machine: "AzureMachineTemplate"},
}

// ClusterTemplates returns the files of all templates of clusters, by the name that clusterctl looks for.
func ClusterTemplates() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, flavor := range flavors {
		name := "cluster-template.yaml"
		if flavor.name != "" {
			name = "cluster-template-" + flavor.name + ".yaml"
		}
		var content bytes.Buffer
		parameters := map[string]any{
			"Cluster": flavor.cluster, "Machine": flavor.machine, "AnonymousHealth": flavor.cluster == "AzureCluster",
			"Templates": []machineTemplate{
				{Name: "control-plane", Variable: "CONTROL_PLANE", Profile: "control-plane.cluster-api-provider-aws.sigs.k8s.io"},
				{Name: "worker", Variable: "NODE", Profile: "nodes.cluster-api-provider-aws.sigs.k8s.io"},
			},
		}
		if flavor.cluster != "" {
			if err := templates.ExecuteTemplate(&content, "machines.yaml", parameters); err != nil {
				return nil, fmt.Errorf("writing %s: %w", name, err)
			}
		}
		if err := templates.ExecuteTemplate(&content, flavor.file, parameters); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		out[name] = content.Bytes()
	}
	return out, nil
}
