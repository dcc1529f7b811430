package v1

import "k8s.io/apimachinery/pkg/runtime/schema"

// ObjectReference refers to an object of a Cluster API provider in the Cluster's namespace. Group and kind count; the object is read in the
// version that its definition names for the contract.
type ObjectReference struct {
	// APIVersion is group and version, such as infrastructure.cluster.x-k8s.io/v1beta2.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Namespace must be the Cluster's own, or be left out.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// UID has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	UID string `json:"uid,omitempty"`
	// ResourceVersion has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// FieldPath has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	FieldPath string `json:"fieldPath,omitempty"`
}

// GroupVersionKind returns what the reference says about the kind.
func (r *ObjectReference) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
}

// GroupKind returns the kind as references are told apart by it.
func (r *ObjectReference) GroupKind() schema.GroupKind { return r.GroupVersionKind().GroupKind() }
