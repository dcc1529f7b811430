package render

import (
	"cmp"
	"slices"
	"strings"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// The kinds of objects that a cluster's specification refers to.
const (
	// KindSecret is the kind Secret of core/v1.
	KindSecret = references.Secret
	// KindConfigMap is the kind ConfigMap of core/v1.
	KindConfigMap = references.ConfigMap
)

// Reference names an object.
type Reference struct {
	// Kind is KindSecret or KindConfigMap.
	Kind string
	// Name of the object.
	Name string
	// Namespace is empty for the cluster's own.
	Namespace string
}

// Object is the content of a Secret or ConfigMap.
type Object struct {
	// Type of a Secret.
	Type string
	// Data of the Secret or ConfigMap.
	Data map[string][]byte
	// Forbidden says why no machine may get a Secret; empty if one may.
	Forbidden string
	// AuthorizedFor is the comma-separated list of clusters that may use the object for files on machines.
	AuthorizedFor string
	// GrantedTo is the comma-separated list of clusters that may use a Secret for themselves: names of clusters in the Secret's own namespace,
	// and others as namespace/name.
	GrantedTo string
}

// Objects are what the references of a cluster resolve to. A reference that is not in it does not exist.
type Objects map[Reference]Object

// authorizes reports whether the object may be used for files on the machines of a cluster.
func (o Object) authorizes(cluster string) bool { return lists(o.AuthorizedFor, cluster) }

// lists reports whether a comma-separated list has an entry.
func lists(list, entry string) bool { return slices.Contains(rkev1.SplitList(list), entry) }

// parseRef reads "name", "namespace:name" and "namespace/name".
func parseRef(kind, text string) Reference {
	for _, separator := range []string{":", "/"} {
		if namespace, name, found := strings.Cut(text, separator); found {
			return Reference{Kind: kind, Namespace: namespace, Name: name}
		}
	}
	return Reference{Kind: kind, Name: text}
}

// References lists what a cluster's specification refers to, each once and sorted. Whoever renders a plan loads them first.
func References(spec rkev1.RKEControlPlaneSpec) []Reference {
	var refs []Reference
	add := func(kind, name string) {
		if name != "" {
			refs = append(refs, Reference{Kind: kind, Name: name})
		}
	}
	if spec.ETCD != nil && spec.ETCD.S3 != nil && spec.ETCD.S3.CloudCredentialName != "" {
		refs = append(refs, parseRef(KindSecret, spec.ETCD.S3.CloudCredentialName))
	}
	configs := []rkev1.GenericMap{spec.MachineGlobalConfig}
	for _, selector := range spec.MachineSelectorConfig {
		configs = append(configs, selector.Config)
	}
	for _, config := range configs {
		if ref, ok := secretURL(config.Data[cloudProviderConfig]); ok {
			refs = append(refs, ref)
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
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(refs)
}
