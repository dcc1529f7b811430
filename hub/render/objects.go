package render

import (
	"cmp"
	"slices"
	"strings"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The kinds of objects that a cluster's specification refers to.
const (
	KindSecret    = "Secret"
	KindConfigMap = "ConfigMap"
)

// Reference names an object in the cluster's namespace.
type Reference struct {
	Kind, Name string
}

// Object is the content of a Secret or ConfigMap.
type Object struct {
	// Type of a Secret.
	Type string
	Data map[string][]byte
	// AuthorizedFor is the comma-separated list of clusters that may use the object for files on machines.
	AuthorizedFor string
}

// Objects are what the references of a cluster resolve to. A reference that is not in it does not exist.
type Objects map[Reference]Object

// authorizes tells whether the object may be used for files on the machines of a cluster.
func (o Object) authorizes(cluster string) bool {
	for name := range strings.SplitSeq(o.AuthorizedFor, ",") {
		if strings.TrimSpace(name) == cluster {
			return true
		}
	}
	return false
}

// References lists what a cluster's specification refers to, each once and sorted. Whoever renders a plan loads them first.
func References(spec rkev1.RKEControlPlaneSpec) []Reference {
	var refs []Reference
	add := func(kind, name string) {
		if name != "" {
			refs = append(refs, Reference{Kind: kind, Name: name})
		}
	}
	if spec.Registries != nil {
		for _, config := range spec.Registries.Configs {
			add(KindSecret, config.AuthConfigSecretName)
			add(KindSecret, config.TLSSecretName)
		}
	}
	for _, files := range spec.MachineSelectorFiles {
		for _, source := range files.FileSources {
			if source.Secret != nil {
				add(KindSecret, source.Secret.Name)
			}
			if source.ConfigMap != nil {
				add(KindConfigMap, source.ConfigMap.Name)
			}
		}
	}
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(refs)
}
