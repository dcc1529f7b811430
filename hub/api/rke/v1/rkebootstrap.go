package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RKEBootstrap is how a machine gets its agent: the machine's identity towards the hub, its plan Secret and its bootstrap data.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkebootstraps,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=bootstrap-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Data Secret",type=string,JSONPath=`.status.dataSecretName`,description="Secret with the bootstrap data"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`,description="Whether the machine can start"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What it waits for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RKEBootstrap struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RKEBootstrapSpec `json:"spec,omitempty"`
	// +optional
	Status RKEBootstrapStatus `json:"status,omitempty"`
}

// RKEBootstrapSpec is what the bootstrap data is made from.
type RKEBootstrapSpec struct {
	// ClusterName is the name of the Cluster.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// Userdata is merged into the bootstrap data.
	// +optional
	Userdata Userdata `json:"userdata,omitempty,omitzero"`
}

// Userdata is what the user adds to the bootstrap data, and the form that it takes.
type Userdata struct {
	// InlineUserdata is a cloud-config document; with the format ignition, an Ignition config in JSON.
	// +optional
	InlineUserdata string `json:"inlineUserdata,omitempty"`
	// Format is the form of the bootstrap data. Empty means cloud-config, and a plain script for machines that take nothing else: custom
	// machines and those of node drivers.
	// +optional
	Format BootstrapFormat `json:"format,omitempty"`
}

// DefaultScript reports whether the bootstrap data of a machine that takes a plain script are that and nothing else.
func (u Userdata) DefaultScript() bool {
	return u.InlineUserdata == "" && (u.Format == "" || u.Format == ScriptFormat)
}

// BootstrapFormat is the form of bootstrap data.
//
// +kubebuilder:validation:Enum="";cloud-config;script;ignition
type BootstrapFormat string

// Values of BootstrapFormat.
const (
	// CloudConfigFormat is a cloud-config document for cloud-init.
	CloudConfigFormat BootstrapFormat = "cloud-config"
	// ScriptFormat is a shell script, which cloud-init and others run as it is.
	ScriptFormat BootstrapFormat = "script"
	// IgnitionFormat is an Ignition config of version 3.
	IgnitionFormat BootstrapFormat = "ignition"
)

// RKEBootstrapStatus is what the hub made.
type RKEBootstrapStatus struct {
	// Conditions: Ready, IdentityReady, DataSecretReady, NodeSynced, SystemAgentUpgraded, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization RKEBootstrapInitializationStatus `json:"initialization,omitempty,omitzero"`
	// DataSecretName names the Secret with the bootstrap data.
	// +optional
	DataSecretName *string `json:"dataSecretName,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Ready is Initialization.DataSecretCreated for the contract v1beta1.
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// RKEBootstrapInitializationStatus is what Cluster API waits for.
type RKEBootstrapInitializationStatus struct {
	// DataSecretCreated is true once the bootstrap data is there.
	// +optional
	DataSecretCreated *bool `json:"dataSecretCreated,omitempty"`
}

// GetConditions returns the conditions of the status.
func (b *RKEBootstrap) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (b *RKEBootstrap) SetConditions(conditions []metav1.Condition) { b.Status.Conditions = conditions }

// RKEBootstrapList is a list of RKEBootstrap.
//
// +kubebuilder:object:root=true
type RKEBootstrapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKEBootstrap `json:"items"`
}

// RKEBootstrapTemplate is what MachineDeployments and control planes make RKEBootstraps from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkebootstraptemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=bootstrap-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RKEBootstrapTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RKEBootstrapTemplateSpec `json:"spec,omitempty"`
}

// RKEBootstrapTemplateSpec holds the template.
type RKEBootstrapTemplateSpec struct {
	// ClusterName is the name of the Cluster.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
	// Template is what is made.
	// +optional
	Template RKEBootstrapTemplateResource `json:"template,omitempty,omitzero"`
}

// RKEBootstrapTemplateResource is metadata and spec of an RKEBootstrap.
type RKEBootstrapTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec RKEBootstrapSpec `json:"spec,omitempty,omitzero"`
}

// RKEBootstrapTemplateList is a list of RKEBootstrapTemplate.
//
// +kubebuilder:object:root=true
type RKEBootstrapTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKEBootstrapTemplate `json:"items"`
}
