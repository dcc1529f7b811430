package v1

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Refers reports whether a Cluster API reference names an object of this group's kind, in whatever version. It does not say whether there
// is such an object, or whose it is.
func Refers(ref clusterv1.ContractVersionedObjectReference, kind string) bool {
	return ref.APIGroup == GroupVersion.Group && ref.Kind == kind
}

// SplitList returns the entries of a list that commas separate, as annotations and headers of machines hold it, without empty ones.
func SplitList(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return slices.DeleteFunc(parts, func(part string) bool { return part == "" })
}
