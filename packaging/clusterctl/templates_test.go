package clusterctl

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/crds"
)

// variables are what each flavor needs beyond clusterctl's own.
var variables = map[string][]string{
	"":    nil,
	"dev": {"DEV_MACHINE_IMAGE=example.com/host:v1"},
	"vsphere": {
		"VSPHERE_SERVER=vcenter.example.com", "VSPHERE_TLS_THUMBPRINT=AA:BB", "CONTROL_PLANE_ENDPOINT_IP=192.0.2.10", "VSPHERE_DATACENTER=dc",
		"VSPHERE_DATASTORE=ds", "VSPHERE_FOLDER=vms", "VSPHERE_RESOURCE_POOL=*/Resources", "VSPHERE_TEMPLATE=debian",
		"VSPHERE_NETWORK=VM Network",
	},
	"aws": {
		"AWS_REGION=eu-central-1", "AWS_AMI_ID=ami-0123456789", "AWS_CONTROL_PLANE_MACHINE_TYPE=t3.large", "AWS_NODE_MACHINE_TYPE=t3.medium",
	},
	"azure": {
		"AZURE_LOCATION=westeurope", "AZURE_SUBSCRIPTION_ID=00000000-0000-0000-0000-000000000000", "CLUSTER_IDENTITY_NAME=identity",
		"AZURE_CONTROL_PLANE_MACHINE_TYPE=Standard_D2s_v5", "AZURE_NODE_MACHINE_TYPE=Standard_D2s_v5", "AZURE_IMAGE_PUBLISHER=Debian",
		"AZURE_IMAGE_OFFER=debian-12", "AZURE_IMAGE_SKU=12-gen2",
	},
}

// infrastructureGroup has the kinds of infrastructure providers. Drover's own are among them.
const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

// TestClusterTemplates validates the objects of Drover and Cluster API.
func TestClusterTemplates(t *testing.T) {
	checkTemplates(t, nil)
}

// TestHealthChecks: only the load balancer of Azure has the API server asked without a credential.
func TestHealthChecks(t *testing.T) {
	files, err := ClusterTemplates()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if is, want := strings.Contains(string(content), "anonymous-auth=true"), name == "cluster-template-azure.yaml"; is != want {
			t.Errorf("%s: anonymous requests are let in: %t", name, is)
		}
	}
}

// TestRemediation: health checks replace the machines of a control plane one at a time, and workers as they like.
func TestRemediation(t *testing.T) {
	files, err := ClusterTemplates()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			if !strings.Contains(document, "kind: MachineDeployment\n") {
				continue
			}
			etcd := strings.Contains(document, "rke.cattle.io/etcd-role")
			if limited := strings.Contains(document, "remediation: {maxInFlight: 1}"); limited != etcd {
				t.Errorf("%s: a health check replaces machines with etcd (%t) one at a time: %t", name, etcd, limited)
			}
		}
	}
}

// checkTemplates has clusterctl generate a cluster of each flavor, and validates the objects with the definitions of Drover, Cluster API
// and the given ones of providers; without any, those of providers are left out. References must lead to objects of the same file.
func checkTemplates(t *testing.T, providers []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	r := unpack(t, version)
	definitions, err := crds.Definitions(crds.Options{})
	if err != nil {
		t.Fatal(err)
	}
	definitions = append(definitions, providers...)
	for _, flavor := range flavors {
		t.Run(flavor.name, func(t *testing.T) {
			out := r.run(t, variables[flavor.name], "generate", "cluster", "first", "--infrastructure", "drover:"+version, "--flavor", flavor.name,
				"--target-namespace", "fleet", "--kubernetes-version", "v1.36.3+rke2r1", "--control-plane-machine-count", "3",
				"--worker-machine-count", "2")
			if strings.Contains(out, "${") || strings.Contains(out, "{{") {
				t.Errorf("something is left to replace:\n%s", out)
			}
			objects := map[string]*unstructured.Unstructured{}
			for document := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "\n---\n") {
				object := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
					t.Fatalf("%v in\n%s", err, document)
				}
				if object.GetNamespace() != "fleet" {
					t.Errorf("%s %s is in the namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
				}
				objects[object.GetKind()+" "+object.GetName()] = object
				if !validate(t, definitions, object) && (providers != nil || object.GroupVersionKind().Group != infrastructureGroup) {
					t.Errorf("no definition has the kind %s", object.GroupVersionKind())
				}
			}
			checkReferences(t, objects)
			if flavor.name != "" && len(objects) != 8 {
				t.Errorf("there are %d objects, want a cluster and two kinds of machines", len(objects))
			}
		})
	}
}

// validate checks an object with its definition, and that the definition knows all of its fields. It returns false if there is no
// definition.
func validate(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition, object *unstructured.Unstructured) bool {
	t.Helper()
	kind := object.GroupVersionKind()
	for _, definition := range definitions {
		if definition.Spec.Group != kind.Group || definition.Spec.Names.Kind != kind.Kind {
			continue
		}
		i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == kind.Version
		})
		if i < 0 {
			t.Fatalf("%s has no version %s", definition.Name, kind.Version)
		}
		schema := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
			definition.Spec.Versions[i].Schema.OpenAPIV3Schema, schema, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := validation.NewSchemaValidator(schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range validation.ValidateCustomResource(nil, object.Object, validator) {
			t.Errorf("%s %s: %v", kind.Kind, object.GetName(), err)
		}
		structural, err := structuralschema.NewStructural(schema)
		if err != nil {
			t.Fatal(err)
		}
		unknown := pruning.PruneWithOptions(object.DeepCopy().Object, structural, true,
			structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		if len(unknown) > 0 {
			t.Errorf("%s %s has the unknown fields %v", kind.Kind, object.GetName(), unknown)
		}
		return true
	}
	return false
}

// checkReferences checks that all references lead to objects of the same file.
func checkReferences(t *testing.T, objects map[string]*unstructured.Unstructured) {
	t.Helper()
	for key, object := range objects {
		for _, path := range []string{
			"spec.infrastructureRef", "spec.controlPlaneRef", "spec.template.spec.bootstrap.configRef", "spec.template.spec.infrastructureRef",
		} {
			reference, found, err := unstructured.NestedStringMap(object.Object, strings.Split(path, ".")...)
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				continue
			}
			target := objects[reference["kind"]+" "+reference["name"]]
			if target == nil || target.GroupVersionKind().Group != reference["apiGroup"] {
				t.Errorf("%s: %s leads to %v, which the file does not have", key, path, reference)
			}
		}
	}
}
