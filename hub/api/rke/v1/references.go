package v1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Refers reports whether a Cluster API reference names an object of this group's kind, in whatever version. It does not say whether there
// is such an object, or whose it is.
func Refers(ref clusterv1.ContractVersionedObjectReference, kind string) bool {
	return ref.APIGroup == GroupVersion.Group && ref.Kind == kind
}
