package clusteragent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRefusedCustomization: what the API server of a cluster would refuse does not keep the agent from being deployed.
func TestRefusedCustomization(t *testing.T) {
	memory := func(request, limit string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
		}
	}
	budget := func(text string) *rkev1.AgentSchedulingCustomization {
		return &rkev1.AgentSchedulingCustomization{PodDisruptionBudget: &rkev1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.Parse(text))}}
	}
	ofRancher := &rkev1.AgentSchedulingCustomization{
		PodDisruptionBudget: &rkev1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromString("1"))},
	}
	for name, tc := range map[string]struct {
		customization rkev1.AgentDeploymentCustomization
		text          string
		want          bool
	}{
		"limit":              {rkev1.AgentDeploymentCustomization{OverrideResourceRequirements: memory("77Mi", "77Mi")}, "77Mi", true},
		"limit below":        {rkev1.AgentDeploymentCustomization{OverrideResourceRequirements: memory("77Mi", "64Mi")}, "77Mi", false},
		"budget":             {rkev1.AgentDeploymentCustomization{SchedulingCustomization: budget("50%")}, "PodDisruptionBudget", true},
		"budget of Rancher":  {rkev1.AgentDeploymentCustomization{SchedulingCustomization: ofRancher}, "minAvailable: 1\n", true},
		"budget of nothing":  {rkev1.AgentDeploymentCustomization{SchedulingCustomization: budget("half")}, "PodDisruptionBudget", false},
		"budget of too much": {rkev1.AgentDeploymentCustomization{SchedulingCustomization: budget("-1")}, "PodDisruptionBudget", false},
	} {
		manifest, err := Manifest(input(func(in *Input) { in.Customization = &tc.customization }))
		if err != nil || strings.Contains(string(manifest), tc.text) != tc.want {
			t.Errorf("%s: got %v and\n%s", name, err, manifest)
		}
	}
}
