package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RKEControlPlaneContractSpec are the fields by which Cluster API drives a control plane that makes its own Machines. They are unset where
// Machines come from machine pools or register themselves.
type RKEControlPlaneContractSpec struct {
	// Version is KubernetesVersion under the name that Cluster API knows.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`
	// Replicas is how many control-plane Machines there shall be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// MachineTemplate is what control-plane Machines are made from.
	// +optional
	MachineTemplate *RKEControlPlaneMachineTemplate `json:"machineTemplate,omitempty"`
	// Rollout is how Machines are changed.
	// +optional
	Rollout RKEControlPlaneRollout `json:"rollout,omitempty,omitzero"`
	// ControlPlaneEndpoint is where the cluster's API is reached, where the infrastructure is another provider's and does not say. Unset, the
	// hub sets it to a machine of the control plane, which Cluster API copies into the Cluster.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(self.?host.orValue('') == '') == (self.?port.orValue(0) == 0)",message="controlPlaneEndpoint needs host and port: set both, such as lb.example.com and 6443"
	ControlPlaneEndpoint APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`
}

// RKEControlPlaneMachineTemplate is what control-plane Machines are made from.
type RKEControlPlaneMachineTemplate struct {
	// ObjectMeta holds labels and annotations of the Machines.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec is the Machines' spec, except what the hub sets.
	// +optional
	Spec RKEControlPlaneMachineTemplateSpec `json:"spec,omitempty,omitzero"`
}

// RKEControlPlaneMachineTemplateSpec is the Machines' spec, except what the hub sets.
type RKEControlPlaneMachineTemplateSpec struct {
	// InfrastructureRef is the template of the infrastructure machines.
	// +optional
	InfrastructureRef clusterv1.ContractVersionedObjectReference `json:"infrastructureRef,omitempty,omitzero"`
	// ReadinessGates are conditions of the Machine that count for its readiness.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	// Deletion is how long each step of a Machine's deletion may take.
	// +optional
	Deletion RKEControlPlaneMachineDeletion `json:"deletion,omitempty,omitzero"`
	// Taints of the Nodes.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	// +kubebuilder:validation:MaxItems=64
	Taints []clusterv1.MachineTaint `json:"taints,omitempty"`
}

// RKEControlPlaneMachineDeletion is how long each step of a Machine's deletion may take; 0 means no limit.
type RKEControlPlaneMachineDeletion struct {
	// NodeDrainTimeoutSeconds limits the drain.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDrainTimeoutSeconds *int32 `json:"nodeDrainTimeoutSeconds,omitempty"`
	// NodeVolumeDetachTimeoutSeconds limits the wait for volumes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeVolumeDetachTimeoutSeconds *int32 `json:"nodeVolumeDetachTimeoutSeconds,omitempty"`
	// NodeDeletionTimeoutSeconds limits the deletion of the Node.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NodeDeletionTimeoutSeconds *int32 `json:"nodeDeletionTimeoutSeconds,omitempty"`
}

// RKEControlPlaneRollout is how Machines are changed.
type RKEControlPlaneRollout struct {
	// After replaces all Machines that are older than that time, once it is reached.
	// +optional
	After metav1.Time `json:"after,omitempty,omitzero"`
	// Before replaces Machines before something happens to them.
	// +optional
	Before RKEControlPlaneRolloutBefore `json:"before,omitempty,omitzero"`
	// Strategy is how.
	// +optional
	Strategy RKEControlPlaneRolloutStrategy `json:"strategy,omitempty,omitzero"`
}

// RKEControlPlaneRolloutBefore replaces Machines before something happens to them.
type RKEControlPlaneRolloutBefore struct {
	// CertificatesExpiryDays replaces Machines that many days before their certificates expire.
	// +optional
	// +kubebuilder:validation:Minimum=7
	CertificatesExpiryDays int32 `json:"certificatesExpiryDays,omitempty"`
}

// RolloutStrategyType is how Machines are changed.
//
// +kubebuilder:validation:Enum=RollingUpdate;InPlaceOnly
type RolloutStrategyType string

// Values of RolloutStrategyType.
const (
	// RollingUpdateStrategy changes a Machine in place where that can be done, and replaces it otherwise.
	RollingUpdateStrategy RolloutStrategyType = "RollingUpdate"
	// InPlaceOnlyStrategy never replaces a Machine.
	InPlaceOnlyStrategy RolloutStrategyType = "InPlaceOnly"
)

// RKEControlPlaneRolloutStrategy is how Machines are changed.
type RKEControlPlaneRolloutStrategy struct {
	// Type defaults to RollingUpdate.
	// +optional
	Type RolloutStrategyType `json:"type,omitempty"`
	// MaxSurge is how many Machines there may be beyond Replicas: 0 or 1, 1 where unset.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}
