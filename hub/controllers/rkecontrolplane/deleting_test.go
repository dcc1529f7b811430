package rkecontrolplane

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestDeletionIsExplained: a deletion says what it waits for, also when it fails, and a conflict does not change that.
func TestDeletionIsExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		deleting string
		err      error
		want     string
	}{
		"a wait":     {deleting: "Waiting for a", want: "Waiting for a"},
		"a failure":  {err: errTest{}, want: "Deleting failed, retrying: broken"},
		"a conflict": {want: "Waiting for a and b"},
	} {
		s := &scope{controlPlane: &rkev1.RKEControlPlane{}, deleting: tc.deleting}
		s.controlPlane.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		conditions.Set(s.controlPlane, metav1.Condition{Type: clusterv1.DeletingCondition, Status: metav1.ConditionTrue,
			Reason: clusterv1.DeletingReason, Message: "Waiting for a and b"})
		setStatus(s, tc.err)
		for _, conditionType := range []string{clusterv1.DeletingCondition, rkev1.ReadyCondition} {
			if got := conditions.GetMessage(s.controlPlane, conditionType); got != tc.want {
				t.Errorf("%s: %s says %q, want %q", name, conditionType, got, tc.want)
			}
		}
	}
}
