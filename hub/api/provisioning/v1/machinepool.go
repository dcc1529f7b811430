package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// RKEMachinePool is a group of machines that are alike.
//
// +kubebuilder:validation:XValidation:rule=`self.?machineConfigRef.?kind.orValue("") != "" && self.?machineConfigRef.?name.orValue("") != ""`,message="spec.rkeConfig.machinePools[].machineConfigRef is required: name apiVersion, kind and name of the machine template or machine configuration that the pool's machines are made from"
// +kubebuilder:validation:XValidation:rule="!has(self.machineConfigRef) || !has(self.machineConfigRef.apiVersion) || self.machineConfigRef.apiVersion.size() == 0 || self.machineConfigRef.apiVersion.contains('/')",message="spec.rkeConfig.machinePools[].machineConfigRef.apiVersion must be that of a machine template of a Cluster API provider, such as infrastructure.cluster.x-k8s.io/v1beta2, or rke-machine-config.cattle.io/v1, the default, for the machine configuration of a node driver"
// +kubebuilder:validation:XValidation:rule="self.?etcdRole.orValue(false) || self.?controlPlaneRole.orValue(false) || self.?workerRole.orValue(false)",message="spec.rkeConfig.machinePools[]: a pool needs at least one of etcdRole, controlPlaneRole and workerRole"
// +kubebuilder:validation:XValidation:rule="has(self.autoscalingMinSize) == has(self.autoscalingMaxSize)",message="spec.rkeConfig.machinePools[]: set both of autoscalingMinSize and autoscalingMaxSize, or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscalingMinSize) || !has(self.autoscalingMaxSize) || self.autoscalingMinSize <= self.autoscalingMaxSize",message="spec.rkeConfig.machinePools[].autoscalingMinSize must not be greater than autoscalingMaxSize"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscalingMinSize) || self.autoscalingMinSize > 0 || !(self.?etcdRole.orValue(false) || self.?controlPlaneRole.orValue(false))",message="spec.rkeConfig.machinePools[].autoscalingMinSize must be greater than 0 for a pool with etcdRole or controlPlaneRole"
// +kubebuilder:validation:XValidation:rule=`self.?machineOS.orValue("") != 'windows' || !(self.?etcdRole.orValue(false) || self.?controlPlaneRole.orValue(false))`,message="spec.rkeConfig.machinePools[].machineOS: windows machines can only be workers"
// +kubebuilder:validation:XValidation:rule="!has(self.nodeStartupTimeout) || !self.nodeStartupTimeout.matches('^[0-9.a-z]+[a-z]$') || duration(self.nodeStartupTimeout) == duration('0s') || duration(self.nodeStartupTimeout) >= duration('30s')",message="spec.rkeConfig.machinePools[].nodeStartupTimeout must be at least 30s, or 0s for never"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnhealthy) || self.maxUnhealthy.matches('^([0-9]+|[0-9][0-9]?%|100%)?$')",message="spec.rkeConfig.machinePools[].maxUnhealthy must be a number such as 2 or a percentage such as 40%"
// +kubebuilder:validation:XValidation:rule="!has(self.unhealthyRange) || self.unhealthyRange.matches('^([[][0-9]+-[0-9]+[]])?$')",message="spec.rkeConfig.machinePools[].unhealthyRange must be a range in brackets such as [1-3]"
type RKEMachinePool struct {
	// Name of the pool, unique within the Cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// DisplayName is deprecated and has no effect.
	// +optional
	// +nullable
	DisplayName string `json:"displayName,omitempty"`
	// MachineConfigRef is the machine template of a Cluster API provider, or the machine configuration of a node driver (apiVersion
	// rke-machine-config.cattle.io/v1, the default), that machines are made from. A change of what it says replaces the machines.
	// +optional
	MachineConfigRef *ObjectReference `json:"machineConfigRef,omitempty"`
	// EtcdRole machines run etcd.
	// +optional
	EtcdRole bool `json:"etcdRole,omitempty"`
	// ControlPlaneRole machines run the API server, the scheduler and the controllers.
	// +optional
	ControlPlaneRole bool `json:"controlPlaneRole,omitempty"`
	// WorkerRole machines run Pods.
	// +optional
	WorkerRole bool `json:"workerRole,omitempty"`
	// Quantity is how many machines there shall be; unset means 1, or what an autoscaler asks for if autoscalingMinSize and autoscalingMaxSize
	// are set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +nullable
	Quantity *int32 `json:"quantity,omitempty"`
	// AutoscalingMinSize is the least that an autoscaler may ask for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoscalingMinSize *int32 `json:"autoscalingMinSize,omitempty"`
	// AutoscalingMaxSize is the most that an autoscaler may ask for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AutoscalingMaxSize *int32 `json:"autoscalingMaxSize,omitempty"`
	// Labels of the Nodes and Machines.
	// +optional
	// +nullable
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the Nodes.
	// +optional
	// +nullable
	Taints []corev1.Taint `json:"taints,omitempty"`
	// CloudCredentialSecretName is for this pool instead of the Cluster's. Node drivers use it; Cluster API providers have their own.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +nullable
	CloudCredentialSecretName string `json:"cloudCredentialSecretName,omitempty"`
	// Userdata is merged into the bootstrap data of machines of Cluster API providers. Those of node drivers take it in their machine
	// configuration.
	// +optional
	// +nullable
	Userdata *rkev1.Userdata `json:"userdata,omitempty"`
	// Paused leaves the pool as it is.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// DrainBeforeDelete drains Nodes before their machines are deleted.
	// +optional
	DrainBeforeDelete bool `json:"drainBeforeDelete,omitempty"`
	// DrainBeforeDeleteTimeout limits that drain; unset means no limit.
	// +optional
	DrainBeforeDeleteTimeout *Duration `json:"drainBeforeDeleteTimeout,omitempty"`
	// RollingUpdate is how machines are replaced.
	// +optional
	// +nullable
	RollingUpdate *RKEMachinePoolRollingUpdate `json:"rollingUpdate,omitempty"`
	// MachineDeploymentLabels are set on the MachineDeployment.
	// +optional
	// +nullable
	MachineDeploymentLabels map[string]string `json:"machineDeploymentLabels,omitempty"`
	// MachineDeploymentAnnotations are set on the MachineDeployment.
	// +optional
	// +nullable
	MachineDeploymentAnnotations map[string]string `json:"machineDeploymentAnnotations,omitempty"`
	// NodeStartupTimeout is after which a machine without a Node is replaced; unset means 10m, or 45m for machines of a node driver; 0 never.
	// +optional
	NodeStartupTimeout *Duration `json:"nodeStartupTimeout,omitempty"`
	// UnhealthyNodeTimeout is after which a machine with an unhealthy Node is replaced; unset or 0 means never.
	// +optional
	UnhealthyNodeTimeout *Duration `json:"unhealthyNodeTimeout,omitempty"`
	// MaxUnhealthy is a number or percentage of unhealthy machines above which none is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=10
	MaxUnhealthy *string `json:"maxUnhealthy,omitempty"`
	// UnhealthyRange is a range such as [1-3] of unhealthy machines outside of which none is replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	UnhealthyRange *string `json:"unhealthyRange,omitempty"`
	// MachineOS is the operating system; empty means linux.
	// +optional
	// +kubebuilder:validation:Enum="";linux;windows
	MachineOS string `json:"machineOS,omitempty"`
	// DynamicSchemaSpec has no effect: the hub reads the fields of a node driver from the driver.
	// +optional
	// +nullable
	DynamicSchemaSpec string `json:"dynamicSchemaSpec,omitempty"`
	// HostnameLengthLimit limits the names of machines of this pool.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=63
	HostnameLengthLimit int `json:"hostnameLengthLimit,omitempty"`
}

// RKEMachinePoolRollingUpdate is how machines are replaced.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || !has(self.maxSurge) || self.maxUnavailable != 0 && self.maxUnavailable != '0%' || self.maxSurge != 0 && self.maxSurge != '0%'",message="spec.rkeConfig.machinePools[].rollingUpdate: maxUnavailable and maxSurge cannot both be 0; let one of them be at least 1"
type RKEMachinePoolRollingUpdate struct {
	// MaxUnavailable is a number or percentage of machines that may be missing.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is a number or percentage of machines that there may be beyond Quantity.
	// +optional
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// MachineConfigGroup is the API group of the machine configurations of node drivers.
const MachineConfigGroup = "rke-machine-config.cattle.io"

// MachineConfigKind is the kind that MachineConfigRef names. A reference without apiVersion is one to a machine configuration.
func (p *RKEMachinePool) MachineConfigKind() schema.GroupVersionKind {
	if p.MachineConfigRef == nil {
		return schema.GroupVersionKind{}
	}
	kind := p.MachineConfigRef.GroupVersionKind()
	if p.MachineConfigRef.APIVersion == "" {
		kind.Group, kind.Version = MachineConfigGroup, "v1"
	}
	return kind
}

// DesiredQuantity is the number of machines of a pool. A pool with an autoscaler and without a quantity starts with the minimum size.
func (p *RKEMachinePool) DesiredQuantity() int32 {
	if p.Quantity != nil {
		return *p.Quantity
	}
	if p.AutoscalingMinSize != nil {
		return max(1, *p.AutoscalingMinSize)
	}
	return 1
}
