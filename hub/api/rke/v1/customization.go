package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// AgentDeploymentCustomization changes how an agent is deployed.
type AgentDeploymentCustomization struct {
	// AppendTolerations are added to the agent's own.
	// +optional
	// +nullable
	AppendTolerations []corev1.Toleration `json:"appendTolerations,omitempty"`
	// OverrideAffinity replaces the agent's own.
	// +optional
	// +nullable
	OverrideAffinity *corev1.Affinity `json:"overrideAffinity,omitempty"`
	// OverrideResourceRequirements replaces the agent's own.
	// +optional
	// +nullable
	OverrideResourceRequirements *corev1.ResourceRequirements `json:"overrideResourceRequirements,omitempty"`
	// SchedulingCustomization gives the agent a priority and a disruption budget.
	// +optional
	// +nullable
	SchedulingCustomization *AgentSchedulingCustomization `json:"schedulingCustomization,omitempty"`
}

// AgentSchedulingCustomization gives an agent a priority and a disruption budget.
type AgentSchedulingCustomization struct {
	// PriorityClass of the agent.
	// +optional
	// +nullable
	PriorityClass *PriorityClassSpec `json:"priorityClass,omitempty"`
	// PodDisruptionBudget of the agent.
	// +optional
	// +nullable
	PodDisruptionBudget *PodDisruptionBudgetSpec `json:"podDisruptionBudget,omitempty"`
}

// PriorityClassSpec is the priority of an agent.
type PriorityClassSpec struct {
	// Value is the priority.
	// +optional
	// +kubebuilder:validation:Minimum=-1000000000
	// +kubebuilder:validation:Maximum=1000000000
	Value int `json:"value,omitempty"`
	// PreemptionPolicy is whether it may push others out.
	// +optional
	// +kubebuilder:validation:Enum=Never;PreemptLowerPriority
	PreemptionPolicy *corev1.PreemptionPolicy `json:"preemptionPolicy,omitempty"`
}

// PodDisruptionBudgetSpec is the disruption budget of an agent: one of the two.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.minAvailable) && has(self.maxUnavailable))",message="podDisruptionBudget: set only one of minAvailable and maxUnavailable"
type PodDisruptionBudgetSpec struct {
	// MinAvailable is a number or a percentage.
	// +optional
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
	// MaxUnavailable is a number or a percentage.
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}
