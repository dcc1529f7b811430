package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EncryptionKeyRotation replaces the key that a cluster's Secrets are encrypted with in etcd, and writes all Secrets with the new one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=encryptionkeyrotations,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EncryptionKeyRotation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says for which Cluster.
	Spec EncryptionKeyRotationSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// EncryptionKeyRotationSpec says for which Cluster.
type EncryptionKeyRotationSpec struct {
	Spec `json:",inline"`
}

// The steps of an EncryptionKeyRotation. A release that has one command for it goes through StepRotateKeys, StepRestart and StepVerify,
// others through those from StepPrepare to StepPostReencryptRestart, and StepVerify. The phases of status.rotateEncryptionKeysPhase have
// the same names, but that StepRotatePrepared is "Rotate" there, StepRestart "PostRotateRestart", and StepVerify "PostReencryptRestart".
const (
	// StepRotateKeys is the step in which one machine makes a new key and writes all Secrets with it.
	StepRotateKeys = "Rotate"
	// StepRestart is the step in which the servers restart one by one, and learn of the new key.
	StepRestart = "Restart"
	// StepVerify is the step in which each control plane node checks that all have the new key, and that it can read all Secrets.
	StepVerify = "Verify"
	// StepPrepare is the step in which one machine adds a key that nothing is written with yet.
	StepPrepare = "Prepare"
	// StepPostPrepareRestart is the step in which the servers restart to be able to read what the added key has encrypted.
	StepPostPrepareRestart = "PostPrepareRestart"
	// StepRotatePrepared is the step in which one machine makes the added key the one to write with.
	StepRotatePrepared = "RotatePrepared"
	// StepPostRotateRestart is the step in which the servers restart to write with it.
	StepPostRotateRestart = "PostRotateRestart"
	// StepReencrypt is the step in which one machine writes all Secrets with it.
	StepReencrypt = "Reencrypt"
	// StepPostReencryptRestart is the step in which the servers restart to forget the old key.
	StepPostReencryptRestart = "PostReencryptRestart"
)

// EncryptionKeyRotationList is a list of EncryptionKeyRotations.
//
// +kubebuilder:object:root=true
type EncryptionKeyRotationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []EncryptionKeyRotation `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (r *EncryptionKeyRotation) CommonSpec() *Spec { return &r.Spec.Spec }

// CommonStatus returns the status.
func (r *EncryptionKeyRotation) CommonStatus() *Status { return &r.Status }

// GetConditions returns the conditions.
func (r *EncryptionKeyRotation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *EncryptionKeyRotation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}
