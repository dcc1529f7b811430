package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LabMachine is a host of the lab that a Machine runs on. The host has its name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=labmachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","cluster.x-k8s.io/provider=infrastructure-lab","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="On",type=string,JSONPath=`.status.conditions[?(@.type=='HostOn')].status`,description="Whether the host runs"
// +kubebuilder:printcolumn:name="Bootstrap",type=string,JSONPath=`.status.conditions[?(@.type=='BootstrapFinished')].reason`,description="How far the bootstrap data is"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.addresses[?(@.type=='InternalIP')].address`,description="The host's address"
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=1,JSONPath=`.spec.providerID`,description="The host's identity"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LabMachine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec LabMachineSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status LabMachineStatus `json:"status,omitempty,omitzero"`
}

// LabMachineSpec is what is wanted.
type LabMachineSpec struct {
	// ProviderID is the host's identity; the provider fills it in.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// Tags are put into the file /etc/lab/tags of the host, a line name=value each, when the host is made.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Tags map[string]string `json:"tags,omitempty"`
}

// LabMachineStatus is what there is.
type LabMachineStatus struct {
	// Conditions: Ready, HostOn, BootstrapFinished, Deleting, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization InitializationStatus `json:"initialization,omitempty,omitzero"`
	// Addresses are the host's name and its address.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// FailureDomain is where the Machine was wanted.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
}

// GetConditions returns the conditions of the status.
func (m *LabMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (m *LabMachine) SetConditions(conditions []metav1.Condition) { m.Status.Conditions = conditions }

// LabMachineList is a list of LabMachine.
//
// +kubebuilder:object:root=true
type LabMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LabMachine `json:"items"`
}

// LabMachineTemplate is what Cluster API makes LabMachines from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=labmachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","cluster.x-k8s.io/provider=infrastructure-lab","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LabMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec LabMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// LabMachineTemplateSpec holds the template.
type LabMachineTemplateSpec struct {
	// Template is what is made.
	// +required
	Template LabMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// LabMachineTemplateResource is metadata and spec of a LabMachine.
type LabMachineTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec LabMachineSpec `json:"spec,omitempty,omitzero"`
}

// LabMachineTemplateList is a list of LabMachineTemplate.
//
// +kubebuilder:object:root=true
type LabMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LabMachineTemplate `json:"items"`
}
