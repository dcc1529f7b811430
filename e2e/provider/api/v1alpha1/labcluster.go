package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LabCluster is what the machines of a cluster in a lab have in common.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=labclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","cluster.x-k8s.io/provider=infrastructure-lab","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`,description="Whether machines may be made"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`,description="Where the cluster's API is reached"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LabCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec LabClusterSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status LabClusterStatus `json:"status,omitempty,omitzero"`
}

// LabClusterSpec is what is wanted.
type LabClusterSpec struct {
	// ControlPlaneEndpoint is where the cluster's API is reached. The provider fills it in where LoadBalancer is true.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
	// LoadBalancer puts a load balancer for TCP before the control plane machines, at the lab's own address.
	// +optional
	LoadBalancer bool `json:"loadBalancer,omitempty"`
	// FailureDomains are names of places where machines can stand. A lab has one place only, so they are names and nothing else.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	FailureDomains []string `json:"failureDomains,omitempty"`
}

// LabClusterStatus is what there is.
type LabClusterStatus struct {
	// Conditions: Ready, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization InitializationStatus `json:"initialization,omitempty,omitzero"`
	// FailureDomains are those of the spec, in the contract's form.
	// +optional
	// +listType=map
	// +listMapKey=name
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
}

// InitializationStatus is what Cluster API waits for.
type InitializationStatus struct {
	// Provisioned is true once the infrastructure is there; it stays true.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// GetConditions returns the conditions of the status.
func (c *LabCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *LabCluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// LabClusterList is a list of LabCluster.
//
// +kubebuilder:object:root=true
type LabClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LabCluster `json:"items"`
}

// LabClusterTemplate is what a ClusterClass makes LabClusters from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=labclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","cluster.x-k8s.io/provider=infrastructure-lab","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LabClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec LabClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// LabClusterTemplateSpec holds the template.
type LabClusterTemplateSpec struct {
	// Template is what is made.
	// +required
	Template LabClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// LabClusterTemplateResource is metadata and spec of a LabCluster.
type LabClusterTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec LabClusterSpec `json:"spec,omitempty,omitzero"`
}

// LabClusterTemplateList is a list of LabClusterTemplate.
//
// +kubebuilder:object:root=true
type LabClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LabClusterTemplate `json:"items"`
}
