package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Operation is an operation of any kind.
//
// +kubebuilder:object:generate=false
type Operation interface {
	metav1.Object
	runtime.Object
	// CommonSpec is what the spec of all operations has.
	CommonSpec() *Spec
	// CommonStatus is what the status of all operations has.
	CommonStatus() *Status
	// GetConditions returns the conditions.
	GetConditions() []metav1.Condition
	// SetConditions replaces the conditions.
	SetConditions([]metav1.Condition)
}

// List is a list of operations of one kind.
//
// +kubebuilder:object:generate=false
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Kinds returns an empty operation of each kind.
func Kinds() []Operation {
	return []Operation{&ETCDSnapshotSave{}, &ETCDSnapshotRestore{}, &ETCDSnapshotDelete{}, &CertificateRotation{},
		&EncryptionKeyRotation{}, &TokenRotation{}}
}

// Lists returns an empty list of each kind of operation.
func Lists() []List {
	return []List{&ETCDSnapshotSaveList{}, &ETCDSnapshotRestoreList{}, &ETCDSnapshotDeleteList{},
		&CertificateRotationList{}, &EncryptionKeyRotationList{}, &TokenRotationList{}}
}

// ClusterReference names the Cluster that an operation is for. It is in the namespace of the operation.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'Cluster'",message="kind must be Cluster"
// +kubebuilder:validation:XValidation:rule="self.apiVersion.startsWith('provisioning.cattle.io/') || self.apiVersion.startsWith('cluster.x-k8s.io/')",message="apiVersion must be of provisioning.cattle.io or cluster.x-k8s.io"
type ClusterReference struct {
	// APIVersion is of provisioning.cattle.io or of cluster.x-k8s.io: both Clusters of a cluster have the same name.
	// +kubebuilder:validation:MaxLength=100
	APIVersion string `json:"apiVersion"`
	// Kind is Cluster.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace is that of the operation, or empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the Cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// Spec is what all operations have.
//
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef",message="clusterRef cannot be changed; delete the operation and create another"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",message="cancel cannot be taken back; delete the operation and create another"
type Spec struct {
	// ClusterRef names the Cluster.
	ClusterRef ClusterReference `json:"clusterRef"`
	// Paused starts nothing more. What a machine is doing already goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Cancel ends the operation for good. What a machine is doing already goes on, and does not count.
	// +optional
	Cancel bool `json:"cancel,omitempty"`
	// TTL is after how many seconds an operation that has ended is deleted: at once for 0, never for a negative number.
	// +optional
	TTL int64 `json:"ttl,omitempty"`
}

// Phase is how far an operation is.
//
// +kubebuilder:validation:Enum=Pending;InProgress;Succeeded;Failed;Canceled
type Phase string

// The phases. The last three are final.
const (
	// PhasePending means that the operation has not begun.
	PhasePending Phase = "Pending"
	// PhaseInProgress means that machines are working on it.
	PhaseInProgress Phase = "InProgress"
	// PhaseSucceeded means that every machine has done its part.
	PhaseSucceeded Phase = "Succeeded"
	// PhaseFailed means that it could not begin, that a machine has failed, or that a step did not end in time.
	PhaseFailed Phase = "Failed"
	// PhaseCanceled means that a user has ended it by spec.cancel.
	PhaseCanceled Phase = "Canceled"
)

// Ended reports whether an operation in the phase has ended.
func (p Phase) Ended() bool { return p == PhaseSucceeded || p == PhaseFailed || p == PhaseCanceled }

// Status is what all operations have.
type Status struct {
	// Phase is how far the operation is; empty until the hub has seen it.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Step is what is being done while the operation is in progress; the kind says which steps it has.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Step string `json:"step,omitempty"`
	// Leader is the Machine that does what one machine does for all others, in kinds that have such steps.
	// +optional
	Leader string `json:"leader,omitempty"`
	// LastUpdated is when the phase, the step or a machine last changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// TerminatedAt is when the operation ended.
	// +optional
	TerminatedAt *metav1.Time `json:"terminatedAt,omitempty"`
	// ObservedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Succeeded, which says what is done or waited for, and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Machines are the machines that take part in the step, or took part in the last one.
	// +optional
	// +listType=atomic
	Machines []MachineStatus `json:"machines,omitempty"`
}

// MachineStatus is how far a machine is.
type MachineStatus struct {
	// Name of the Machine.
	Name string `json:"name"`
	// Phase is InProgress, Succeeded, Failed, or Canceled where the operation goes on without the machine.
	Phase Phase `json:"phase"`
	// Message says why it failed or was left out, or that the Machine was deleted.
	// +optional
	Message string `json:"message,omitempty"`
}

// The conditions of operations.
const (
	// SucceededCondition is Unknown until the operation has ended.
	SucceededCondition = "Succeeded"
	// PausedCondition is true while spec.paused keeps the operation from going on. A pause of the Cluster is in SucceededCondition.
	PausedCondition = "Paused"
)

// EndedAnnotation, on an operation, is the phase in which it ended. It outlives a status that was lost, so that nothing is done twice.
const EndedAnnotation = "operation.cattle.io/ended"
