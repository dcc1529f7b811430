package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ETCDSnapshot is a snapshot that a cluster has, on one of its machines or in a bucket.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=etcdsnapshots,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","auth.cattle.io/cluster-indexed=true","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The Cluster it was taken of"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.snapshotFile.nodeName`,description="Node that took it"
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.snapshotFile.size`,description="Bytes"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.snapshotFile.status`
// +kubebuilder:printcolumn:name="Missing",type=boolean,JSONPath=`.status.missing`,description="Whether it is gone"
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.snapshotFile.createdAt`
type ETCDSnapshot struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec ETCDSnapshotSpec `json:"spec,omitempty"`
	// SnapshotFile tells about the file.
	// +optional
	SnapshotFile ETCDSnapshotFile `json:"snapshotFile,omitempty"`
	// +optional
	Status ETCDSnapshotStatus `json:"status,omitempty"`
}

// ETCDSnapshotSpec says whose it is.
type ETCDSnapshotSpec struct {
	// ClusterName is the name of the Cluster.
	// +optional
	ClusterName string `json:"clusterName,omitempty"`
}

// ETCDSnapshotFile tells about the file.
type ETCDSnapshotFile struct {
	// Name of the file.
	// +optional
	Name string `json:"name,omitempty"`
	// NodeName is the Node that took it.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Location is a file or s3 URL.
	// +optional
	Location string `json:"location,omitempty"`
	// Metadata is the base64 of a JSON object of strings.
	// +optional
	Metadata string `json:"metadata,omitempty"`
	// CreatedAt is when it was taken.
	// +optional
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// Size in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// S3 is the bucket, where it is in one.
	// +optional
	S3 *ETCDSnapshotS3 `json:"s3,omitempty"`
	// Status is successful or failed.
	// +optional
	Status string `json:"status,omitempty"`
	// Message tells why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// ETCDSnapshotStatus is what the hub found.
type ETCDSnapshotStatus struct {
	// Missing is true for a file that the cluster no longer lists, or whose Node is gone.
	// +optional
	Missing bool `json:"missing,omitempty"`
	// MissingSince is since when.
	// +optional
	MissingSince *metav1.Time `json:"missingSince,omitempty"`
}

// ETCDSnapshotList is a list of ETCDSnapshot.
//
// +kubebuilder:object:root=true
type ETCDSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []ETCDSnapshot `json:"items"`
}
