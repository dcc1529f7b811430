package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ETCDSnapshotDelete deletes the file of an ETCDSnapshot, on the machine that has it or in S3, and then the ETCDSnapshot.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=etcdsnapshotdeletes,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Snapshot",type=string,JSONPath=`.spec.args.name`,description="The ETCDSnapshot"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ETCDSnapshotDelete struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what to delete.
	Spec ETCDSnapshotDeleteSpec `json:"spec"`
	// +optional
	Status ETCDSnapshotDeleteStatus `json:"status,omitempty"`
}

// ETCDSnapshotDeleteSpec says what to delete.
type ETCDSnapshotDeleteSpec struct {
	Spec `json:",inline"`
	// Args say which snapshot.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="args cannot be changed; create another ETCDSnapshotDelete"
	Args ETCDSnapshotDeleteArgs `json:"args"`
}

// ETCDSnapshotDeleteArgs say which snapshot to delete.
type ETCDSnapshotDeleteArgs struct {
	// Name of the ETCDSnapshot, in the namespace of the operation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name"`
}

// ETCDSnapshotDeleteStatus is how far a deletion is.
type ETCDSnapshotDeleteStatus struct {
	Status `json:",inline"`
	// MachineName is the Machine on which the deletion of the file began; empty where no machine can reach the file.
	// +optional
	MachineName string `json:"machineName,omitempty"`
	// Snapshot is what is deleted, as the ETCDSnapshot said when the operation began.
	// +optional
	Snapshot *DeletedSnapshot `json:"snapshot,omitempty"`
	// Unreachable says why no machine can reach the file. The ETCDSnapshot is deleted all the same, since the cluster does not list the file.
	// +optional
	Unreachable string `json:"unreachable,omitempty"`
}

// DeletedSnapshot is a file with a snapshot.
type DeletedSnapshot struct {
	// Name of the file.
	Name string `json:"name"`
	// Location is its URL, as the cluster lists it: file:///path or s3://bucket/folder/name.
	// +optional
	Location string `json:"location,omitempty"`
}

// The steps of a deletion, in their order.
const (
	// StepDelete is the step in which one machine deletes the file.
	StepDelete = "Delete"
	// StepCleanup is the step in which the hub waits until the cluster does not list the file, and deletes the ETCDSnapshot.
	StepCleanup = "Cleanup"
)

// ETCDSnapshotDeleteList is a list of ETCDSnapshotDeletes.
//
// +kubebuilder:object:root=true
type ETCDSnapshotDeleteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []ETCDSnapshotDelete `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (d *ETCDSnapshotDelete) CommonSpec() *Spec { return &d.Spec.Spec }

// CommonStatus returns the part of the status that all operations have.
func (d *ETCDSnapshotDelete) CommonStatus() *Status { return &d.Status.Status }

// GetConditions returns the conditions.
func (d *ETCDSnapshotDelete) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the conditions.
func (d *ETCDSnapshotDelete) SetConditions(conditions []metav1.Condition) {
	d.Status.Conditions = conditions
}
