package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ETCDSnapshotSave saves a snapshot of etcd, on all machines with etcd or on one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=etcdsnapshotsaves,scope=Namespaced,categories=operations
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.clusterRef.name`
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`,description="The Cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ETCDSnapshotSave struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what to save.
	Spec ETCDSnapshotSaveSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// ETCDSnapshotSaveSpec says what to save.
//
// +kubebuilder:validation:XValidation:rule="has(self.machineName) == has(oldSelf.machineName)",message="machineName cannot be changed; create another ETCDSnapshotSave",fieldPath=".machineName"
// +kubebuilder:validation:XValidation:rule="(has(self.args) && has(self.args.name)) == (has(oldSelf.args) && has(oldSelf.args.name)) && (has(self.args) && has(self.args.etcd_snapshot_dir)) == (has(oldSelf.args) && has(oldSelf.args.etcd_snapshot_dir)) && (has(self.args) && has(self.args.etcd_snapshot_compress)) == (has(oldSelf.args) && has(oldSelf.args.etcd_snapshot_compress))",message="args cannot be changed; create another ETCDSnapshotSave",fieldPath=".args"
type ETCDSnapshotSaveSpec struct {
	Spec `json:",inline"`
	// MachineName is the Machine to save the snapshot on; empty for all that have etcd.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="machineName cannot be changed; create another ETCDSnapshotSave"
	MachineName string `json:"machineName,omitempty"`
	// Args are those of the command.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="args cannot be changed; create another ETCDSnapshotSave"
	Args ETCDSnapshotSaveArgs `json:"args,omitempty"`
}

// ETCDSnapshotSaveArgs are the arguments of "etcd-snapshot save" of RKE2 and k3s.
type ETCDSnapshotSaveArgs struct {
	// Name begins the name of the file, which goes on with the Node and the time. Default: on-demand.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	Name string `json:"name,omitempty"`
	// Compress compresses the file.
	// +optional
	Compress bool `json:"etcd_snapshot_compress,omitempty"`
	// Dir is the directory to save the file in, an absolute path. Default: the one that the cluster is configured with.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[A-Za-z0-9._/-]*$`
	Dir string `json:"etcd_snapshot_dir,omitempty"`
}

// StepSave is the step in which machines save their snapshots.
const StepSave = "Save"

// ETCDSnapshotSaveList is a list of ETCDSnapshotSaves.
//
// +kubebuilder:object:root=true
type ETCDSnapshotSaveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []ETCDSnapshotSave `json:"items"`
}

// CommonSpec returns the part of the spec that all operations have.
func (s *ETCDSnapshotSave) CommonSpec() *Spec { return &s.Spec.Spec }

// CommonStatus returns the status.
func (s *ETCDSnapshotSave) CommonStatus() *Status { return &s.Status }

// GetConditions returns the conditions.
func (s *ETCDSnapshotSave) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions.
func (s *ETCDSnapshotSave) SetConditions(conditions []metav1.Condition) {
	s.Status.Conditions = conditions
}
