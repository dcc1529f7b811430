package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ETCDSnapshotRestore restores a cluster from a snapshot of its etcd. What was written since the snapshot is lost.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=etcdsnapshotrestores,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Snapshot",type=string,JSONPath=`.spec.args.name`,description="The ETCDSnapshot"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ETCDSnapshotRestore struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what to restore.
	Spec ETCDSnapshotRestoreSpec `json:"spec"`
	// +optional
	Status ETCDSnapshotRestoreStatus `json:"status,omitempty"`
}

// ETCDSnapshotRestoreSpec says what to restore.
type ETCDSnapshotRestoreSpec struct {
	Spec `json:",inline"`
	// Args say which snapshot.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="args cannot be changed; create another ETCDSnapshotRestore"
	Args ETCDSnapshotRestoreArgs `json:"args"`
}

// ETCDSnapshotRestoreArgs say which snapshot to restore.
type ETCDSnapshotRestoreArgs struct {
	// Name of the ETCDSnapshot, in the namespace of the operation.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// ETCDSnapshotRestoreStatus is how far a restore is.
type ETCDSnapshotRestoreStatus struct {
	Status `json:",inline"`
	// MachineName is the Machine that the snapshot is restored on; the other servers join it then.
	// +optional
	MachineName string `json:"machineName,omitempty"`
	// Snapshot is what is restored, as the ETCDSnapshot said when the operation began.
	// +optional
	Snapshot *RestoredSnapshot `json:"snapshot,omitempty"`
	// Unchanged is true once the operation has ended without success and has changed nothing: no machine was given the task to stop.
	// +optional
	Unchanged bool `json:"unchanged,omitempty"`
}

// RestoredSnapshot is a file with a snapshot.
type RestoredSnapshot struct {
	// Name of the file.
	Name string `json:"name"`
	// Path of the file on the machine; empty for one in a bucket.
	// +optional
	Path string `json:"path,omitempty"`
	// Size in bytes; 0 where it is not known.
	// +optional
	Size int64 `json:"size,omitempty"`
	// SHA256 is the checksum of the file, as hexadecimal digits; empty where none was recorded when it was saved.
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// CreatedAt is when it was saved, which says the token that its data is encrypted with.
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// S3 is where in S3 it is; nil for a file on the machine. Endpoint and credentials are those of the cluster's configuration.
	// +optional
	S3 *RestoredSnapshotS3 `json:"s3,omitempty"`
}

// RestoredSnapshotS3 is where in S3 a snapshot is. What is empty is that of the cluster's configuration.
type RestoredSnapshotS3 struct {
	// Bucket is the bucket.
	// +optional
	Bucket string `json:"bucket,omitempty"`
	// Folder is the folder in the bucket.
	// +optional
	Folder string `json:"folder,omitempty"`
	// Region is that of the bucket.
	// +optional
	Region string `json:"region,omitempty"`
}

// BucketRoot is the folder of a snapshot that is in no folder of its bucket, while the cluster's configuration has one.
const BucketRoot = "."

// The steps of a restore, in their order.
const (
	// StepPreflight checks what the restore needs, and changes nothing.
	StepPreflight = "Preflight"
	// StepShutdown stops the distribution and its containers on all machines.
	StepShutdown = "Shutdown"
	// StepRestore restores the snapshot on one machine.
	StepRestore = "Restore"
	// StepPostRestorePodCleanup starts that machine.
	StepPostRestorePodCleanup = "PostRestorePodCleanup"
	// StepInitialRestartCluster has the other machines join it.
	StepInitialRestartCluster = "InitialRestartCluster"
	// StepPostRestoreNodeCleanup deletes Nodes of the snapshot that have no Machine.
	StepPostRestoreNodeCleanup = "PostRestoreNodeCleanup"
	// StepRestartCluster waits for the Nodes to be ready.
	StepRestartCluster = "RestartCluster"
)

// ETCDSnapshotRestoreList is a list of ETCDSnapshotRestores.
//
// +kubebuilder:object:root=true
type ETCDSnapshotRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []ETCDSnapshotRestore `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (r *ETCDSnapshotRestore) CommonSpec() *Spec { return &r.Spec.Spec }

// CommonStatus returns the part of the status that all operations have.
func (r *ETCDSnapshotRestore) CommonStatus() *Status { return &r.Status.Status }

// GetConditions returns the conditions.
func (r *ETCDSnapshotRestore) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions.
func (r *ETCDSnapshotRestore) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}
