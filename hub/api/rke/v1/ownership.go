package v1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BootstrapOwner returns the owner reference by which an object was made for an RKEBootstrap, or nil. Labels can be set by whoever may
// write the object; owner references of this kind are the hub's to set (admission policy drover-machines).
func BootstrapOwner(object metav1.Object) *metav1.OwnerReference {
	owners := object.GetOwnerReferences()
	at := slices.IndexFunc(owners, func(owner metav1.OwnerReference) bool {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		return err == nil && version.Group == GroupVersion.Group && owner.Kind == "RKEBootstrap"
	})
	if at < 0 {
		return nil
	}
	return &owners[at]
}

// Owns reports whether an object was made for this RKEBootstrap, and not for an earlier one of the same name.
func (b *RKEBootstrap) Owns(object metav1.Object) bool {
	owner := BootstrapOwner(object)
	return owner != nil && owner.Name == b.Name && owner.UID == b.UID && object.GetNamespace() == b.Namespace
}
