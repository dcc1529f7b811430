package plansecret

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// TestSettle: what follows from a report follows from that of an applied plan only.
func TestSettle(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const probed = `{"probes":{"kubelet":{}}}`
	passed := map[string]string{rkev1.PlanProbesPassedAnnotation: "2026-01-02T03:04:05Z"}
	for name, tc := range map[string]struct {
		data        map[string][]byte
		annotations map[string]string
		applied     string
		want        map[string]string
	}{
		"applied": {
			data:        map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateSucceeded)},
			annotations: map[string]string{rkev1.PlanRetryAnnotation: "{}"}, applied: "{}", want: passed,
		},
		"applied again": {
			data: map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateSucceeded),
				plans.KeyAppliedPlan: []byte("{}")},
			annotations: map[string]string{rkev1.PlanProbesPassedAnnotation: "before"}, applied: "{}",
			want: map[string]string{rkev1.PlanProbesPassedAnnotation: "before"},
		},
		"applied, not probed": {
			data: map[string][]byte{plans.KeyPlan: []byte(probed), plans.KeyPlanState: []byte(plans.StateSucceeded)}, applied: probed,
		},
		"applied and unhealthy": {
			data: map[string][]byte{plans.KeyPlan: []byte(probed), plans.KeyPlanState: []byte(plans.StateSucceeded),
				plans.KeyProbeStatuses: []byte(`{"kubelet":{"healthy":false}}`)}, applied: probed,
		},
		"being applied": {
			data: map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateInProgress),
				plans.KeyAppliedPlan: []byte("old")},
			annotations: map[string]string{rkev1.PlanRetryAnnotation: "{}"}, applied: "old",
			want: map[string]string{rkev1.PlanRetryAnnotation: "{}"},
		},
		"failed": {
			data:        map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateFailed)},
			annotations: map[string]string{rkev1.PlanRetryAnnotation: "{}"}, want: map[string]string{rkev1.PlanRetryAnnotation: "{}"},
		},
		"not readable": {
			data: map[string][]byte{plans.KeyPlan: []byte("{}"), plans.KeyPlanState: []byte(plans.StateSucceeded),
				plans.KeyFailureCount: []byte("x")},
		},
		"no plan": {data: map[string][]byte{plans.KeyPlanState: []byte(plans.StateSucceeded)}},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Data: tc.data}
			Settle(secret, now)
			if got := string(secret.Data[plans.KeyAppliedPlan]); got != tc.applied {
				t.Errorf("the applied plan is %q, want %q", got, tc.applied)
			}
			if diff := cmp.Diff(tc.want, secret.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}
