package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RKESystemConfig configures the machines that a selector matches.
type RKESystemConfig struct {
	// MachineLabelSelector selects by the Machine's labels; unset selects all.
	// +optional
	// +nullable
	MachineLabelSelector *metav1.LabelSelector `json:"machineLabelSelector,omitempty"`
	// Config goes into config.yaml.
	// +optional
	// +nullable
	Config GenericMap `json:"config,omitempty,omitzero"`
}

// RKEProvisioningFiles puts files on the machines that a selector matches.
type RKEProvisioningFiles struct {
	// MachineLabelSelector selects by the Machine's labels; unset selects all.
	// +optional
	// +nullable
	MachineLabelSelector *metav1.LabelSelector `json:"machineLabelSelector,omitempty"`
	// FileSources are where the files come from.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +nullable
	FileSources []ProvisioningFileSource `json:"fileSources,omitempty"`
}

// ProvisioningFileSource is a Secret or a ConfigMap in the Cluster's namespace. It must carry the annotation
// rke.cattle.io/object-authorized-for-clusters with the Cluster's name.
//
// +kubebuilder:validation:XValidation:rule=`(self.?secret.?name.orValue("") != "") != (self.?configMap.?name.orValue("") != "")`,message="machineSelectorFiles[].fileSources[]: exactly one of secret and configMap must be named"
type ProvisioningFileSource struct {
	// Secret holds the files.
	// +optional
	Secret *K8sObjectFileSource `json:"secret,omitempty"`
	// ConfigMap holds the files.
	// +optional
	ConfigMap *K8sObjectFileSource `json:"configMap,omitempty"`
}

// K8sObjectFileSource says which keys of an object become which files.
type K8sObjectFileSource struct {
	// Name of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Items are the files.
	// +optional
	// +nullable
	Items []KeyToPath `json:"items,omitempty"`
	// DefaultPermissions are octal digits for items that have none of their own.
	// +optional
	DefaultPermissions FilePermissions `json:"defaultPermissions,omitempty"`
	// Optional leaves out what is missing, the object or one of its keys, instead of holding back the plans of all machines that are to
	// have it. Defaults to false.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// KeyToPath makes a file of a key.
type KeyToPath struct {
	// Key of the object's data.
	Key string `json:"key"`
	// Path is absolute.
	Path string `json:"path"`
	// Dynamic says that a change of the file needs no restart of the distribution.
	// +optional
	Dynamic bool `json:"dynamic,omitempty"`
	// Permissions are octal digits.
	// +optional
	Permissions FilePermissions `json:"permissions,omitempty"`
	// Hash is the base64 SHA-256 that the content must have.
	// +optional
	Hash string `json:"hash,omitempty"`
}

// FilePermissions are octal digits such as 0600.
//
// +kubebuilder:validation:MaxLength=5
// +kubebuilder:validation:Pattern=`^$|^[0-7]{3,5}$`
type FilePermissions string
