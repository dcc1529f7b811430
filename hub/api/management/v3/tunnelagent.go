package v3

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TunnelAgent is an agent that has exchanged a registration token for a credential of its own. It is in the namespace of the management
// Cluster. Deleting it revokes the credential: the agent's sessions end and it is not let in again.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tunnelagents,scope=Namespaced
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The management Cluster"
// +kubebuilder:printcolumn:name="Registered With",type=string,JSONPath=`.spec.registrationTokenName`,description="The ClusterRegistrationToken that it was let in with"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TunnelAgent struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec TunnelAgentSpec `json:"spec,omitempty"`
}

// TunnelAgentSpec says whose agent it is.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed; delete the TunnelAgent to revoke its credential"
type TunnelAgentSpec struct {
	// ClusterName is the name of the management Cluster that the agent speaks for.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
	// RegistrationTokenName names the ClusterRegistrationToken that it was let in with.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RegistrationTokenName string `json:"registrationTokenName,omitempty"`
}

// TunnelAgentList is a list of TunnelAgent.
//
// +kubebuilder:object:root=true
type TunnelAgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []TunnelAgent `json:"items"`
}
