package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RKECluster is the infrastructure of a cluster whose machines bring their own: nothing but the endpoint of its control plane.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkeclusters,scope=Namespaced,categories=cluster-api
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=infrastructure-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`,description="The Cluster it belongs to"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.controlPlaneEndpoint.host`,description="Host of the control plane"
// +kubebuilder:printcolumn:name="Provisioned",type=boolean,JSONPath=`.status.initialization.provisioned`,description="Whether machines may be made"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Ready')].message`,description="What is waited for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RKECluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	// +kubebuilder:validation:XValidation:rule="(self.?controlPlaneEndpoint.?host.orValue('') == '') == (self.?controlPlaneEndpoint.?port.orValue(0) == 0)",message="controlPlaneEndpoint needs host and port: set both, such as lb.example.com and 6443",fieldPath=".controlPlaneEndpoint"
	Spec RKEClusterSpec `json:"spec,omitempty"`
	// +optional
	Status RKEClusterStatus `json:"status,omitempty"`
}

// RKEClusterSpec is what a user may decide.
type RKEClusterSpec struct {
	// ControlPlaneEndpoint is where the cluster's API is reached: a load balancer or a name of the user's. Unset, the hub sets
	// it to a machine of the control plane, which Cluster API copies into the Cluster.
	// +optional
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// APIEndpoint is where an API server is reached.
//
// +kubebuilder:validation:XValidation:rule="!has(self.host) || self.host.matches('^([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?[.]?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)?$')",message="controlPlaneEndpoint.host must be a name or an IP address alone, such as lb.example.com; the port goes into controlPlaneEndpoint.port",fieldPath=".host"
type APIEndpoint struct {
	// Host is a name or an address.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Host string `json:"host,omitempty"`
	// Port is a TCP port.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// IsZero is true for an endpoint that nobody set.
func (e APIEndpoint) IsZero() bool { return e.Host == "" && e.Port == 0 }

// IsValid is true for an endpoint with host and port.
func (e APIEndpoint) IsValid() bool { return e.Host != "" && e.Port != 0 }

// RKEClusterStatus is what the hub found.
type RKEClusterStatus struct {
	// Conditions: Ready, Deleting, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization RKEClusterInitializationStatus `json:"initialization,omitempty,omitzero"`
	// FailureDomains are where machines may be put.
	// +optional
	// +listType=map
	// +listMapKey=name
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`
	// Ready is Initialization.Provisioned for the contract v1beta1.
	// +optional
	Ready bool `json:"ready,omitempty"`
}

// RKEClusterInitializationStatus is what Cluster API waits for; it never goes back to false.
type RKEClusterInitializationStatus struct {
	// Provisioned is true once machines may be made.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// GetConditions returns the conditions of the status.
func (c *RKECluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the status.
func (c *RKECluster) SetConditions(conditions []metav1.Condition) { c.Status.Conditions = conditions }

// RKEClusterList is a list of RKECluster.
//
// +kubebuilder:object:root=true
type RKEClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKECluster `json:"items"`
}

// RKEClusterTemplate is what a ClusterClass makes RKEClusters from.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=rkeclustertemplates,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=infrastructure-drover","cluster.x-k8s.io/v1beta1=v1","cluster.x-k8s.io/v1beta2=v1","clusterctl.cluster.x-k8s.io=","auth.cattle.io/cluster-indexed=true"}
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RKEClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec RKEClusterTemplateSpec `json:"spec,omitempty"`
}

// RKEClusterTemplateSpec holds the template.
type RKEClusterTemplateSpec struct {
	// Template is what is made.
	Template RKEClusterTemplateResource `json:"template"`
}

// RKEClusterTemplateResource is metadata and spec of an RKECluster.
type RKEClusterTemplateResource struct {
	// ObjectMeta holds labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// +optional
	Spec RKEClusterSpec `json:"spec,omitempty,omitzero"`
}

// RKEClusterTemplateList is a list of RKEClusterTemplate.
//
// +kubebuilder:object:root=true
type RKEClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []RKEClusterTemplate `json:"items"`
}
