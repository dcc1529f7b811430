package machinestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestRemoval: the member of a deleted machine is to be removed when its Node is drained and other pre-terminate hooks have succeeded.
func TestRemoval(t *testing.T) {
	const backup = clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"
	for name, tc := range map[string]struct {
		stays         bool
		reason, other string
		want          rollout.Removal
	}{
		"drained":            {reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason, want: rollout.RemovalDue},
		"not deleted":        {stays: true, reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason},
		"being drained":      {reason: clusterv1.MachineDeletingDrainingNodeReason},
		"another hook":       {reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason, other: backup},
		"both":               {reason: clusterv1.MachineDeletingDrainingNodeReason, other: backup},
		"another annotation": {reason: clusterv1.MachineDeletingWaitingForPreTerminateHookReason, other: "x", want: rollout.RemovalDue},
	} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			rkev1.RKEBootstrapCleanupPreTerminateHook: rkev1.RKEBootstrapCleanupPreTerminateOwner}}}
		if tc.other != "" {
			machine.Annotations[tc.other] = ""
		}
		if !tc.stays {
			machine.DeletionTimestamp = new(metav1.Unix(1, 0))
		}
		machine.SetConditions([]metav1.Condition{{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue, Reason: tc.reason}})
		if got := removal(machine); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
