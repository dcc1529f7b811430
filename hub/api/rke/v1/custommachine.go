package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// CustomMachine is a machine that a user brought and that registered itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=custommachines,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=infrastructure-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`,description="Whether its Node was seen"
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=1,JSONPath=`.spec.providerID`,description="The Node's provider ID"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What is waited for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CustomMachine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec CustomMachineSpec `json:"spec,omitempty"`
	// +optional
	Status CustomMachineStatus `json:"status,omitempty"`
}

// CustomMachineSpec is what makes the machine known to others.
type CustomMachineSpec struct {
	// ProviderID is that of the Node; the hub fills it in.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`
	// FailureDomain is where the machine stands.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`
}

// CustomMachineStatus is what the hub found.
type CustomMachineStatus struct {
	// Conditions: Ready, NodeFound, NodeMissing, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization CustomMachineInitializationStatus `json:"initialization,omitempty,omitzero"`
	// Addresses are those of the Node.
	// +optional
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
	// FailureDomain is where the machine stands.
	// +optional
	FailureDomain string `json:"failureDomain,omitempty"`
	// Ready is Initialization.Provisioned for the contract v1beta1.
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// CustomMachineInitializationStatus is what Cluster API waits for.
type CustomMachineInitializationStatus struct {
	// Provisioned is true once the machine's Node was seen.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// GetConditions returns the conditions of the status.
func (m *CustomMachine) GetConditions() []metav1.Condition { return m.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (m *CustomMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// CustomMachineList is a list of CustomMachine.
//
// +kubebuilder:object:root=true
type CustomMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []CustomMachine `json:"items"`
}

// CustomMachineTemplate stands for machines that a user will bring, where Cluster API asks for a template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=custommachinetemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=infrastructure-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CustomMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec CustomMachineTemplateSpec `json:"spec,omitempty"`
	// +optional
	Status CustomMachineTemplateStatus `json:"status,omitempty"`
}

// CustomMachineTemplateSpec holds the template.
type CustomMachineTemplateSpec struct {
	// Template is what is made.
	Template CustomMachineTemplateResource `json:"template"`
}

// CustomMachineTemplateResource is metadata and spec of a CustomMachine.
type CustomMachineTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec CustomMachineSpec `json:"spec,omitempty,omitzero"`
}

// CustomMachineTemplateStatus is what an autoscaler may expect of such a machine.
type CustomMachineTemplateStatus struct {
	// Capacity of a machine.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
}

// CustomMachineTemplateList is a list of CustomMachineTemplate.
//
// +kubebuilder:object:root=true
type CustomMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []CustomMachineTemplate `json:"items"`
}
