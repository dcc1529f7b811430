package v1

import (
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// RKEConfig is the configuration of a cluster, its machine pools, and what is to be done with it.
//
// +kubebuilder:validation:XValidation:rule=`(self.?infrastructureRef.?kind.orValue("") == "") == (oldSelf.?infrastructureRef.?kind.orValue("") == "")`,message="spec.rkeConfig.infrastructureRef cannot be added to a cluster or removed from it later: its machines and objects belong to the infrastructure cluster that it has; create another cluster"
type RKEConfig struct {
	rkev1.ClusterConfiguration `json:",inline"`

	// ETCDSnapshotCreate takes a snapshot when its generation changes.
	// +optional
	// +nullable
	ETCDSnapshotCreate *rkev1.ETCDSnapshotCreate `json:"etcdSnapshotCreate,omitempty"`
	// ETCDSnapshotRestore restores a snapshot when it changes.
	// +optional
	// +nullable
	ETCDSnapshotRestore *rkev1.ETCDSnapshotRestore `json:"etcdSnapshotRestore,omitempty"`
	// RotateCertificates makes new certificates when its generation changes.
	// +optional
	// +nullable
	RotateCertificates *rkev1.RotateCertificates `json:"rotateCertificates,omitempty"`
	// RotateEncryptionKeys makes a new key for Secrets at rest when its generation changes.
	// +optional
	// +nullable
	RotateEncryptionKeys *rkev1.RotateEncryptionKeys `json:"rotateEncryptionKeys,omitempty"`
	// MachinePools are groups of machines that the hub makes. A cluster without pools takes machines that register themselves.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	// +nullable
	MachinePools []RKEMachinePool `json:"machinePools,omitempty"`
	// MachinePoolDefaults are for all pools.
	// +optional
	MachinePoolDefaults RKEMachinePoolDefaults `json:"machinePoolDefaults,omitempty,omitzero"`
	// InfrastructureRef is the infrastructure cluster of a Cluster API provider. Unset, the hub makes an RKECluster.
	// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) && self.apiVersion.contains('/') && has(self.kind) && self.kind != '' && has(self.name) && self.name != ''",message="spec.rkeConfig.infrastructureRef needs apiVersion with a group, such as infrastructure.cluster.x-k8s.io/v1beta2, kind and name"
	// +optional
	// +nullable
	InfrastructureRef *ObjectReference `json:"infrastructureRef,omitempty"`
}

// RKEMachinePoolDefaults are for all pools.
type RKEMachinePoolDefaults struct {
	// HostnameLengthLimit limits the names of machines.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=63
	HostnameLengthLimit int `json:"hostnameLengthLimit,omitempty"`
}
