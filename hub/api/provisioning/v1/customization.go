package v1

import (
	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// WebhookDeploymentCustomization changes how the webhook is deployed.
type WebhookDeploymentCustomization struct {
	// ReplicaCount is how many there are.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +nullable
	ReplicaCount *int32 `json:"replicaCount,omitempty"`
	// AppendTolerations are added to the webhook's own.
	// +optional
	// +nullable
	AppendTolerations []corev1.Toleration `json:"appendTolerations,omitempty"`
	// OverrideAffinity replaces the webhook's own.
	// +optional
	// +nullable
	OverrideAffinity *corev1.Affinity `json:"overrideAffinity,omitempty"`
	// OverrideResourceRequirements replaces the webhook's own.
	// +optional
	// +nullable
	OverrideResourceRequirements *corev1.ResourceRequirements `json:"overrideResourceRequirements,omitempty"`
	// PodDisruptionBudget of the webhook.
	// +optional
	// +nullable
	PodDisruptionBudget *rkev1.PodDisruptionBudgetSpec `json:"podDisruptionBudget,omitempty"`
}
