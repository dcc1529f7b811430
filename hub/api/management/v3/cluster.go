package v3

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// Cluster is a cluster as the hub manages it. Its name is also that of the namespace with its registration tokens.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusters,scope=Cluster
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`,description="Name of the Cluster that it was made for"
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=='Connected')].status`,description="Whether its agent is connected"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is what the hub knows of a cluster. Fields that Drover does not use are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterSpec struct {
	// DisplayName is what users call it.
	// +optional
	DisplayName string `json:"displayName,omitempty"`
	// Description is free text.
	// +optional
	Description string `json:"description,omitempty"`
	// Internal is true for the hub's own cluster.
	// +optional
	Internal bool `json:"internal,omitempty"`
	// FleetWorkspaceName is the namespace of the Fleet Cluster.
	// +optional
	FleetWorkspaceName string `json:"fleetWorkspaceName,omitempty"`
	// DefaultPodSecurityAdmissionConfigurationTemplateName names a template for the admission of Pods.
	// +optional
	DefaultPodSecurityAdmissionConfigurationTemplateName string `json:"defaultPodSecurityAdmissionConfigurationTemplateName,omitempty"`
	// EnableNetworkPolicy isolates projects from each other.
	// +optional
	EnableNetworkPolicy *bool `json:"enableNetworkPolicy,omitempty"`
}

// ClusterStatus is what the hub found. Fields that Drover does not use are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterStatus struct {
	// Conditions: Ready, Connected, Provisioned, APIReachable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Driver is what made the cluster: k3s, rke2 or imported.
	// +optional
	Driver string `json:"driver,omitempty"`
	// Provider is the distribution: k3s or rke2.
	// +optional
	Provider string `json:"provider,omitempty"`
	// APIEndpoint is where the cluster's API is reached.
	// +optional
	APIEndpoint string `json:"apiEndpoint,omitempty"`
	// Version is what the cluster's API reports.
	// +optional
	Version *version.Info `json:"version,omitempty"`
	// NodeCount is how many Nodes it has.
	// +optional
	NodeCount int `json:"nodeCount,omitempty"`
	// NodeVersion goes up when agents should look again.
	// +optional
	NodeVersion int `json:"nodeVersion,omitempty"`
}

// GetConditions returns the conditions of the status.
func (c *Cluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *Cluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// Condition types of a management Cluster.
const (
	// ReadyCondition sums up the cluster.
	ReadyCondition = "Ready"
	// ConnectedCondition is true while the cluster's agent is connected.
	ConnectedCondition = "Connected"
	// APIReachableCondition is false while the API of an imported cluster does not answer through its agent, and absent otherwise.
	APIReachableCondition = "APIReachable"
	// ProvisionedCondition is true once the cluster came up.
	ProvisionedCondition = "Provisioned"
)

// ClusterList is a list of Cluster.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []Cluster `json:"items"`
}
