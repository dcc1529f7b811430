package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RKEControlPlaneStatus is what the hub found and how far it is.
type RKEControlPlaneStatus struct {
	// Conditions: Ready, Provisioned, Bootstrapped, Stable, Reconciled, Updated, ConfigurationAccepted, KubeconfigReady, CertificatesValid,
	// and those of the contract (Available, RollingOut, ScalingUp, ScalingDown, MachinesReady, MachinesUpToDate, Remediating, Deleting,
	// Paused).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Initialization holds what Cluster API waits for.
	// +optional
	Initialization RKEControlPlaneInitializationStatus `json:"initialization,omitempty,omitzero"`
	// ExternalManagedControlPlane is false: control-plane nodes are Machines.
	// +optional
	ExternalManagedControlPlane *bool `json:"externalManagedControlPlane,omitempty"`
	// AppliedSpec is the spec that all machines were last given.
	// +optional
	AppliedSpec *RKEControlPlaneSpec `json:"appliedSpec,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Selector selects the control plane's Machines.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Replicas is how many control-plane Machines there are.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// ReadyReplicas is how many of them are Ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is how many of them are Available.
	// +optional
	AvailableReplicas *int32 `json:"availableReplicas,omitempty"`
	// UpToDateReplicas is how many of them have what the spec asks for.
	// +optional
	UpToDateReplicas *int32 `json:"upToDateReplicas,omitempty"`
	// Versions are those that control-plane nodes run, oldest first.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MaxItems=100
	Versions []clusterv1.StatusVersion `json:"versions,omitempty"`
	// Version is the lowest of Versions.
	// +optional
	Version string `json:"version,omitempty"`

	// CertificateRotationGeneration is the rotation that was last done.
	// +optional
	CertificateRotationGeneration int64 `json:"certificateRotationGeneration,omitempty"`
	// RotateEncryptionKeys is the rotation that is being done, or was last done.
	// +optional
	RotateEncryptionKeys *RotateEncryptionKeys `json:"rotateEncryptionKeys,omitempty"`
	// RotateEncryptionKeysPhase is how far it is.
	// +optional
	RotateEncryptionKeysPhase string `json:"rotateEncryptionKeysPhase,omitempty"`
	// RotateEncryptionKeysLeader is the machine that does it.
	// +optional
	RotateEncryptionKeysLeader string `json:"rotateEncryptionKeysLeader,omitempty"`
	// ETCDSnapshotRestore is the restore that is being done, or was last done.
	// +optional
	ETCDSnapshotRestore *ETCDSnapshotRestore `json:"etcdSnapshotRestore,omitempty"`
	// ETCDSnapshotRestorePhase is how far it is.
	// +optional
	ETCDSnapshotRestorePhase string `json:"etcdSnapshotRestorePhase,omitempty"`
	// ETCDSnapshotCreate is the snapshot that is being taken, or was last taken.
	// +optional
	ETCDSnapshotCreate *ETCDSnapshotCreate `json:"etcdSnapshotCreate,omitempty"`
	// ETCDSnapshotCreatePhase is how far it is.
	// +optional
	ETCDSnapshotCreatePhase string `json:"etcdSnapshotCreatePhase,omitempty"`
	// ConfigGeneration is how often Rancher has restored the cluster. The hub keeps the number: with another one, every node restarts.
	// +optional
	ConfigGeneration int64 `json:"configGeneration,omitempty"`
	// AgentConnected is true while the cluster's agent is connected to the hub.
	// +optional
	AgentConnected bool `json:"agentConnected,omitempty"`

	// Ready and Initialized are for the contract v1beta1.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// +optional
	Initialized bool `json:"initialized,omitempty"`
}

// RKEControlPlaneInitializationStatus is what Cluster API waits for.
type RKEControlPlaneInitializationStatus struct {
	// ControlPlaneInitialized is true once the cluster's API was reached, and stays so.
	// +optional
	ControlPlaneInitialized *bool `json:"controlPlaneInitialized,omitempty"`
}
