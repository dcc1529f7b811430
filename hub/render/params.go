package render

import (
	"strings"

	"github.com/drover-dev/drover/plans"
)

// paramFiles are the arguments whose value in the cluster's specification is the content of a file; on the machine they hold its path.
var paramFiles = []string{"audit-policy-file", "cloud-provider-config", "flannel-conf", "private-registry"}

// addParamFiles writes the contents to files and puts the paths in their place. A value that is a path already stays one.
func (b *builder) addParamFiles() {
	for _, param := range paramFiles {
		content := b.args.text(param)
		if content == "" || strings.HasPrefix(content, "/") && !strings.Contains(content, "\n") {
			continue
		}
		if strings.HasPrefix(content, "secret://") {
			b.problems.fail("spec.rkeConfig.machineGlobalConfig."+param, "refers to a Secret, which is not supported yet; write the content itself")
			continue
		}
		path := b.dataDir + "/etc/config-files/" + param
		if param == "private-registry" {
			path = b.registriesPath()
		}
		b.add(plans.File{Path: path}, []byte(content))
		b.args[param] = path
	}
}
