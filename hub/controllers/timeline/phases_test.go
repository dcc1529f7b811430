package timeline

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/timelines"
)

// TestRefusedChange: a cluster whose machines are ready, and whose last change was refused, is not shown as ready.
func TestRefusedChange(t *testing.T) {
	for name, tc := range map[string]struct {
		accepted metav1.ConditionStatus
		imported bool
		want     string
		outcome  timelines.Outcome
	}{
		"accepted":                    {metav1.ConditionTrue, false, phaseReady, timelines.OutcomeReady},
		"refused":                     {metav1.ConditionFalse, false, "FileSourceNotFound", timelines.OutcomeFailed},
		"without effect on an import": {metav1.ConditionFalse, true, phaseReady, timelines.OutcomeReady},
	} {
		cluster := &provisioningv1.Cluster{}
		if !tc.imported {
			cluster.Spec.RKEConfig = &provisioningv1.RKEConfig{}
		}
		cluster.Status.Conditions = []metav1.Condition{
			condition(provisioningv1.ReadyCondition, metav1.ConditionTrue, "Ready", noon),
			condition(provisioningv1.RKEClusterCondition, tc.accepted, "FileSourceNotFound", noon),
		}
		if got := (&scope{provisioning: cluster}).clusterPhase(); got.Name != tc.want || got.Outcome != tc.outcome {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
