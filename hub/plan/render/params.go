package render

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/references"
	"github.com/drover-dev/drover/plans"
)

// cloudProviderConfig is the argument whose content may lie in a Secret.
const cloudProviderConfig = "cloud-provider-config"

// paramFiles are the arguments whose value in the cluster's specification is the content of a file; on the machine they hold its path.
var paramFiles = []string{
	"audit-policy-file", cloudProviderConfig, "flannel-conf", "pod-security-admission-config-file", "private-registry",
}

// secretScheme begins a value that names a Secret: secret://namespace:name.
const secretScheme = "secret://"

// secretURL reads the name of a Secret in the place of a content.
func secretURL(value any) (Reference, bool) {
	text, _ := value.(string)
	name, found := strings.CutPrefix(strings.TrimSpace(text), secretScheme)
	return parseRef(KindSecret, name), found
}

// paramContent writes a content that was given as YAML instead of as a text that holds YAML.
func paramContent(key string, value any) any {
	if _, structured := value.(map[string]any); !structured || !slices.Contains(paramFiles, key) {
		return value
	}
	content, err := yaml.Marshal(value)
	if err != nil {
		return value
	}
	return string(content)
}

// addParamFiles writes the contents to files and puts the paths in their place. A value that is a path already stays one.
func (b *builder) addParamFiles() {
	for _, param := range paramFiles {
		content := b.args.text(param)
		if content == "" || isPath(content) {
			continue
		}
		if strings.HasPrefix(content, secretScheme) {
			content = b.secretContent(param, content)
		}
		path := b.dataDir + "/etc/config-files/" + param
		if param == "private-registry" {
			path = b.registriesPath()
		}
		b.add(plans.File{Path: path}, []byte(content))
		b.args[param] = path
	}
}

// isPath reports whether the value of such an argument is the path of a file, and not its content.
func isPath(value string) bool {
	return strings.HasPrefix(value, "/") && !strings.Contains(value, "\n")
}

// secretContent reads the content that an argument leaves to a Secret, which must say itself that the cluster may have it: else whoever
// may write a cluster could read any Secret on a machine.
func (b *builder) secretContent(param, value string) string {
	field := b.fieldOf(param)
	if param != cloudProviderConfig {
		b.problems.fail(field, "refers to a Secret, which only %s may; write the content itself", cloudProviderConfig)
		return ""
	}
	ref, _ := secretURL(value)
	object, ok := b.refer(references.CloudProvider, field, ref)
	if !ok {
		return ""
	}
	content, ok := object.Data["credential"]
	if !ok {
		b.problems.fail(field, "Secret %q has no key credential", ref.Name)
	}
	return string(content)
}
