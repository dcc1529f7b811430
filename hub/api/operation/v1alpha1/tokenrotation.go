package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TokenRotation replaces the tokens by which servers and agents join a cluster. The data that servers share in etcd is encrypted with the
// server token, so that a snapshot from before needs the old one, which is kept.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tokenrotations,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TokenRotation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says for which Cluster.
	Spec TokenRotationSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// TokenRotationSpec says for which Cluster.
type TokenRotationSpec struct {
	Spec `json:",inline"`
}

// The steps of a TokenRotation.
const (
	// StepRotateToken is the step in which one server encrypts the shared data with the new token.
	StepRotateToken = "RotateToken"
	// StepConfigure is the step in which all machines get a configuration with the new tokens, and nothing restarts.
	StepConfigure = "Configure"
	// StepRestartServers is the step in which the servers restart one by one, and know the old tokens no longer.
	StepRestartServers = "RestartServers"
)

// TokenRotationList is a list of TokenRotations.
//
// +kubebuilder:object:root=true
type TokenRotationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []TokenRotation `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (r *TokenRotation) CommonSpec() *Spec { return &r.Spec.Spec }

// CommonStatus returns the status.
func (r *TokenRotation) CommonStatus() *Status { return &r.Status }

// GetConditions returns the conditions.
func (r *TokenRotation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *TokenRotation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}
