package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CertificateRotation replaces the certificates of RKE2 or k3s on the machines of a cluster, one machine after the other.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=certificaterotations,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CertificateRotation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says which certificates to replace.
	Spec CertificateRotationSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// CertificateRotationSpec says which certificates to replace.
//
// +kubebuilder:validation:XValidation:rule="has(self.services) == has(oldSelf.services)",message="services cannot be changed; create another CertificateRotation"
type CertificateRotationSpec struct {
	Spec `json:",inline"`
	// Services are whose certificates; none means all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="services cannot be changed; create another CertificateRotation"
	Services []CertificateService `json:"services,omitempty"`
}

// CertificateService is a service of RKE2 or k3s whose certificates can be replaced on their own.
//
// +kubebuilder:validation:Enum=admin;api-server;auth-proxy;cloud-controller;controller-manager;etcd;k3s-controller;k3s-server;kube-proxy;kubelet;rke2-controller;rke2-server;scheduler;supervisor
type CertificateService string

// StepRotate is the step in which machines replace their certificates.
const StepRotate = "Rotate"

// CertificatesExpiryAnnotation, on a CertificateRotation that no user has asked for, is the end (RFC 3339) of the certificate for
// which it did.
const CertificatesExpiryAnnotation = "operation.cattle.io/certificates-expiry"

// CertificateRotationList is a list of CertificateRotations.
//
// +kubebuilder:object:root=true
type CertificateRotationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []CertificateRotation `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (r *CertificateRotation) CommonSpec() *Spec { return &r.Spec.Spec }

// CommonStatus returns the status.
func (r *CertificateRotation) CommonStatus() *Status { return &r.Status }

// GetConditions returns the conditions.
func (r *CertificateRotation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *CertificateRotation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}
