package render

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// addSelectorFiles adds the files that the cluster takes from Secrets and ConfigMaps.
func (b *builder) addSelectorFiles() {
	for i, files := range b.Cluster.Spec.MachineSelectorFiles {
		field := fmt.Sprintf("spec.rkeConfig.machineSelectorFiles[%d]", i)
		if !b.selects(field, files.MachineLabelSelector) {
			continue
		}
		for j, source := range files.FileSources {
			at := fmt.Sprintf("%s.fileSources[%d]", field, j)
			secret, configMap := named(source.Secret), named(source.ConfigMap)
			if secret == nil && configMap == nil {
				b.problems.fail(at, "names neither a Secret nor a ConfigMap")
			}
			if secret != nil {
				b.addSource(references.FileSecret, at+".secret", *secret)
			}
			if configMap != nil {
				b.addSource(references.FileConfigMap, at+".configMap", *configMap)
			}
		}
	}
}

// named returns nil for a source that names no object.
func named(source *rkev1.K8sObjectFileSource) *rkev1.K8sObjectFileSource {
	if source == nil || source.Name == "" {
		return nil
	}
	return source
}

func (b *builder) addSource(rule references.Rule, field string, source rkev1.K8sObjectFileSource) {
	ref := Reference{Kind: rule.Kind, Name: source.Name}
	if _, exists := b.Cluster.Objects[ref]; !exists && source.Optional {
		return
	}
	object, ok := b.refer(rule, field+".name", ref)
	if !ok {
		return
	}
	if len(source.Items) == 0 {
		b.problems.doubt(field+".items", "is empty, so that no file is written of %s %q: name the keys, and a path for each", rule.Kind,
			source.Name)
	}
	for k, item := range source.Items {
		at := fmt.Sprintf("%s.items[%d]", field, k)
		content, ok := object.Data[item.Key]
		if !ok && source.Optional {
			continue
		}
		if !ok {
			b.problems.fail(at+".key", "%s %q has no key %q", rule.Kind, source.Name, item.Key)
			continue
		}
		if sum := sha256.Sum256(content); item.Hash != "" && item.Hash != base64.StdEncoding.EncodeToString(sum[:]) {
			b.problems.fail(at+".hash", "does not match the content of key %q", item.Key)
			continue
		}
		permissions := item.Permissions
		if permissions == "" {
			permissions = source.DefaultPermissions
		}
		f := plans.File{Path: item.Path, Permissions: string(permissions), Dynamic: item.Dynamic}
		if err := (plans.Plan{Files: []plans.File{f}}).Validate(); err != nil {
			for fault := range strings.Lines(err.Error()) {
				of, message, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(fault), "files[0]"), ": ")
				b.problems.fail(at+of, "%s", message)
			}
			continue
		}
		b.add(f, content)
	}
}
