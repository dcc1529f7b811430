package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/plans"
)

// registriesArg is the argument with the path of the registries.
const registriesArg = "private-registry"

// keepsRancherStamps reports whether the machine has a plan of Rancher with which it runs as with the wanted one. Rancher writes the same
// configuration in other bytes, so that the distribution would restart on all machines of a cluster that the hub takes over.
func (b *builder) keepsRancherStamps(image string) bool {
	before := install(b.Delivered)
	if b.Machine.windows() || path.Base(before.Image) != path.Base(image) || stamp(before, restartStamp) != b.rancherStamp(before.Image) {
		return false
	}
	had, known := configOf(b.Cluster.Release.Runtime, b.Delivered)
	var files []plans.File
	var wanted args
	for _, f := range b.files {
		switch {
		case f.authority:
			continue
		case f.Path == b.configPath() && json.Unmarshal(f.restart, &wanted) != nil:
			return false
		}
		files = append(files, f.File)
	}
	// What restarts nothing counts for none of the two.
	for _, key := range []string{"node-label", "node-label+", "node-taint", "node-taint+"} {
		delete(had, key)
	}
	return known && maps.Equal(b.staticFiles(had, b.Delivered.Files), b.staticFiles(wanted, files)) &&
		reflect.DeepEqual(takeRegistries(had, b.Delivered.Files), takeRegistries(wanted, files)) && reflect.DeepEqual(had, wanted)
}

// rancherStamp is the stamp with which Rancher delivers the files of the delivered plan, for the generations that are asked for now: a plan
// that has another one is not Rancher's, or the machine is to be restarted.
func (b *builder) rancherStamp(image string) string {
	var parts bytes.Buffer
	parts.WriteString(strconv.Itoa(b.Cluster.Spec.ProvisionGeneration) + image)
	for _, f := range b.Delivered.Files {
		if !f.Dynamic {
			parts.WriteString(f.Path + f.Content)
		}
	}
	parts.WriteString(strconv.FormatInt(b.Cluster.ConfigGeneration, 10))
	sum := sha256.Sum256(parts.Bytes())
	return hex.EncodeToString(sum[:])
}

// takeRegistries takes the registries out of a configuration and returns what they say: nil for none, as in the empty file of Rancher.
func takeRegistries(config args, files []plans.File) any {
	value := config[registriesArg]
	delete(config, registriesArg)
	for _, f := range files {
		if f.Path != value || f.Action == plans.ActionDelete {
			continue
		}
		content, err := base64.StdEncoding.DecodeString(f.Content)
		var registries map[string]any
		if err != nil || yaml.Unmarshal(content, &registries) != nil {
			return f.Content
		}
		return withoutEmptyRegistries(registries)
	}
	return value
}

// withoutEmptyRegistries removes from decoded registries what says nothing; nil where nothing is left. A mirror without fields turns on the
// embedded registry for its host, and an empty text may be what replaces a part of a name: both stay.
func withoutEmptyRegistries(registries map[string]any) any {
	out := map[string]any{}
	for section, hosts := range registries {
		mirrors, is := hosts.(map[string]any)
		if section != "mirrors" || !is {
			if kept := withoutEmpty(hosts); kept != nil {
				out[section] = kept
			}
			continue
		}
		for host, mirror := range mirrors {
			fields, _ := mirror.(map[string]any)
			if fields == nil {
				fields = map[string]any{}
			}
			maps.DeleteFunc(fields, func(_ string, field any) bool { return isEmpty(field) })
			mirrors[host] = fields
		}
		if len(mirrors) > 0 {
			out[section] = mirrors
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// isEmpty reports whether decoded YAML is null, or a list or map without content.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// withoutEmpty removes what says nothing from decoded YAML; nil where nothing is left.
func withoutEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range v {
			if kept := withoutEmpty(field); kept != nil {
				out[key] = kept
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		if isEmpty(v) {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return value
}

// staticFiles are the files whose content restarts the distribution, by path, without its configuration and the registries in it.
func (b *builder) staticFiles(config args, files []plans.File) map[string]string {
	static := map[string]string{}
	for _, f := range files {
		if !f.Dynamic && f.Action != plans.ActionDelete && f.Path != b.configPath() && f.Path != config[registriesArg] {
			static[f.Path] = f.Content
		}
	}
	return static
}

// keptDataDir is the variable of the data directory that Rancher always sets: without it, the environment of the service would be another
// one, and the service restart. It is empty where the delivered plan has none.
func (b *builder) keptDataDir(name string) string {
	for _, v := range install(b.Delivered).Env {
		if dir, found := strings.CutPrefix(v, name+"="); found && path.Clean(dir) == path.Clean(b.dataDir) {
			return v
		}
	}
	return ""
}
