package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel"

	"github.com/drover-dev/drover/hub/api/crds"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

// The API groups of the kinds of node drivers, and their version.
const (
	ConfigGroup  = "rke-machine-config.cattle.io"
	MachineGroup = crds.NodeDriverGroup
	Version      = "v1"
)

// DriverLabel, on a definition, names the NodeDriver that it was made for.
const DriverLabel = "management.cattle.io/node-driver"

// kind is a name of a kind without the driver's.
func kind(driver, suffix string) string { return strings.ToUpper(driver[:1]) + driver[1:] + suffix }

// ConfigKind is the kind of a driver's machine configurations.
func ConfigKind(driver string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: ConfigGroup, Version: Version, Kind: kind(driver, "Config")}
}

// MachineKind is the kind of a driver's infrastructure machines.
func MachineKind(driver string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: MachineGroup, Version: Version, Kind: kind(driver, "Machine")}
}

// TemplateKind is the kind of a driver's machine templates.
func TemplateKind(driver string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: MachineGroup, Version: Version, Kind: kind(driver, "MachineTemplate")}
}

// DriverOf is the driver of a kind of ConfigGroup; empty for another kind.
func DriverOf(config schema.GroupKind) string {
	driver, ok := strings.CutSuffix(config.Kind, "Config")
	if config.Group != ConfigGroup || !ok {
		return ""
	}
	return strings.ToLower(driver)
}

// DriverOfTemplate is the driver of a kind of machine templates; empty for one of another provider.
func DriverOfTemplate(template schema.GroupKind) string {
	driver, ok := strings.CutSuffix(template.Kind, "MachineTemplate")
	if template.Group != MachineGroup || !ok {
		return ""
	}
	return strings.ToLower(driver)
}

// RancherOwnerKindAnnotation is where Rancher writes the kind of what it has made an object for.
const RancherOwnerKindAnnotation = "objectset.rio.cattle.io/owner-gvk"

// rancherSchema is its value on definitions of drivers.
const rancherSchema = "management.cattle.io/v3, Kind=DynamicSchema"

// OfRancher reports whether Rancher has made a definition of a driver, and no hub has taken it over yet. Only administrators write
// definitions.
func OfRancher(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Labels[DriverLabel] == "" && crd.Annotations[RancherOwnerKindAnnotation] == rancherSchema &&
		(crd.Spec.Group == MachineGroup || crd.Spec.Group == ConfigGroup)
}

type props = map[string]apiextensionsv1.JSONSchemaProps

// Definitions returns the definitions of a driver's three kinds. nodeDriver is the name of the NodeDriver.
func Definitions(nodeDriver, driver string, fields []Field) []*apiextensionsv1.CustomResourceDefinition {
	config := definition(nodeDriver, ConfigKind(driver), fmt.Sprintf("machines that the node driver %s makes", driver))
	version := &config.Spec.Versions[0]
	for name, p := range flagProps(fields, true, "") {
		version.Schema.OpenAPIV3Schema.Properties[name] = p
	}

	machine := definition(nodeDriver, MachineKind(driver), fmt.Sprintf("a machine that the node driver %s makes", driver))
	provider(machine)
	version = &machine.Spec.Versions[0]
	const immutable = "a machine that is made cannot be changed; change the machine configuration of its pool, which replaces the machines"
	spec := flagProps(fields, false, immutable)
	spec["common"] = common()
	spec["providerID"] = text("ProviderID is that of the Node; the hub writes it.", 512)
	version.Schema.OpenAPIV3Schema.Properties["spec"] = object("Spec is what the machine is made from.", spec)
	version.Schema.OpenAPIV3Schema.Properties["status"] = machineStatus()
	version.Schema.OpenAPIV3Schema.XValidations = sameFields(fields, ".?spec", immutable)
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	version.AdditionalPrinterColumns = machineColumns

	template := definition(nodeDriver, TemplateKind(driver), fmt.Sprintf("the template of machines that the node driver %s makes", driver))
	provider(template)
	const fixed = "machine templates cannot be changed; change the machine configuration of the pool"
	spec = flagProps(fields, true, fixed)
	spec["common"] = common()
	inner := object("Spec is what machines are made from.", spec)
	outer := object("Template is the template of a machine.", props{"spec": inner})
	template.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = object("Spec holds the template.", props{
		"template": outer,
	})
	template.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = sameFields(fields, ".?spec.?template.?spec", fixed)
	return []*apiextensionsv1.CustomResourceDefinition{config, machine, template}
}

// provider labels a definition as Cluster API's contract asks for.
func provider(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Labels["cluster.x-k8s.io/v1beta2"] = Version
	crd.Spec.Names.Categories = []string{"cluster-api"}
}

func definition(nodeDriver string, gvk schema.GroupVersionKind, what string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(gvk.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   singular + "s." + gvk.Group,
			Labels: map[string]string{DriverLabel: nodeDriver, "clusterctl.cluster.x-k8s.io": "", "auth.cattle.io/cluster-indexed": "true"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: gvk.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: gvk.Kind, ListKind: gvk.Kind + "List", Singular: singular, Plural: singular + "s",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: gvk.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Description: gvk.Kind + " describes " + what + ".",
					Properties: props{
						"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
					},
				}},
			}},
		},
	}
}

// flagProps are the fields of a driver's flags. Where they cannot be changed once they are set, immutable says what to do instead.
func flagProps(fields []Field, defaults bool, immutable string) props {
	out := props{}
	for _, field := range fields {
		p := flagProp(field.Flag)
		if field.File {
			p.Default = nil // that of the flag is a path
			p.Description = strings.TrimSpace(p.Description + " (the content of the file)")
		}
		if !defaults {
			p.Default = nil
		}
		if immutable != "" {
			p.XValidations = apiextensionsv1.ValidationRules{{Rule: "self == oldSelf", Message: immutable}}
		}
		out[field.Name] = p
	}
	return out
}

// sameFields is the rule that no field of a flag is added or removed below a path. The API server evaluates the rule of a field itself only
// where both the old and the new object have it.
func sameFields(fields []Field, path, immutable string) apiextensionsv1.ValidationRules {
	var same []string
	for _, field := range fields {
		if name, ok := cel.Escape(field.Name); ok { // else no rule can name it
			same = append(same, fmt.Sprintf("self%[1]s.?%[2]s.hasValue() == oldSelf%[1]s.?%[2]s.hasValue()", path, name))
		}
	}
	if len(same) == 0 {
		return nil
	}
	slices.Sort(same)
	return apiextensionsv1.ValidationRules{{Rule: strings.Join(same, " && "), Message: immutable}}
}

// flagProp is the schema of a flag. A number may be written as a text, as in manifests that people have.
func flagProp(flag plugin.Flag) apiextensionsv1.JSONSchemaProps {
	p := apiextensionsv1.JSONSchemaProps{Description: flag.Usage, Nullable: true}
	switch d := flag.Default.(type) {
	case string:
		p.Type, p.MaxLength = "string", new(int64(maxText))
		if d != "" {
			p.Default = encode(d)
		}
	case int:
		p.XIntOrString, p.Pattern, p.MaxLength = true, `^(-?[0-9]{1,18})?$`, new(int64(20))
		p.AnyOf = []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}
		if d != 0 {
			p.Default = encode(strconv.Itoa(d))
		}
	case bool:
		p.Type = "boolean"
	case []string:
		p.Type, p.MaxItems = "array", new(int64(maxList))
		p.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(4096))}}
		if len(d) > 0 {
			p.Default = encode(d)
		}
	}
	return p
}

func encode(value any) *apiextensionsv1.JSON {
	raw, err := json.Marshal(value)
	if err != nil { // texts and lists of texts can be encoded
		return nil
	}
	return &apiextensionsv1.JSON{Raw: raw}
}

func text(description string, maxLength int64) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "string", Description: description, MaxLength: &maxLength}
}

func object(description string, properties props) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "object", Description: description, Properties: properties}
}

func common() apiextensionsv1.JSONSchemaProps {
	return object("Common is what machines of all drivers have.", props{
		"cloudCredentialSecretName": text("CloudCredentialSecretName names the Secret with the cloud credential: namespace:name, or a name in "+
			"the same namespace.", 317),
	})
}
