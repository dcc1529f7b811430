package operation

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestRestoredHub: a hub that was restored from a backup carries out no operation of the backup, which may have ended since. A restore
// would take the cluster back to its snapshot once more.
func TestRestoredHub(t *testing.T) {
	pending, preflight, restoring := restoreOf("s"), restoreOf("s"), restoreOf("s")
	paused, whole := restoreOf("s"), &operationv1.TokenRotation{ObjectMeta: save().ObjectMeta}
	pending.Status.Phase = operationv1.PhasePending
	preflight.Status.Phase, preflight.Status.Step = operationv1.PhaseInProgress, operationv1.StepPreflight
	restoring.Status.Phase, restoring.Status.Step = operationv1.PhaseInProgress, operationv1.StepRestore
	paused.Spec.Paused = true
	whole.Status.Phase, whole.Status.Step = operationv1.PhaseInProgress, operationv1.StepRotateToken
	for _, op := range []*operationv1.ETCDSnapshotRestore{preflight, restoring} {
		op.Status.MachineName = "a"
		op.Status.Machines = []operationv1.MachineStatus{{Name: "a", Phase: operationv1.PhaseInProgress}}
	}
	in := Inputs{Now: begin.Add(24 * time.Hour), Restored: begin.Add(23 * time.Hour), Bootstrapped: true, Connected: true,
		Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b")}}
	for name, op := range map[string]operationv1.Operation{
		"new": restoreOf("s"), "pending": pending, "checking": preflight, "restoring": restoring, "paused": paused, "a whole step": whole,
	} {
		d := Decide(op, in)
		c := conditions.Get(op, operationv1.SucceededCondition)
		if op.CommonStatus().Phase != operationv1.PhaseFailed || c == nil || c.Reason != ReasonHubRestored || len(d.Tasks) > 0 {
			t.Errorf("%s: %s, runs %v, %+v", name, op.CommonStatus().Phase, d.Tasks, c)
		}
	}
	if c := conditions.Get(restoring, operationv1.SucceededCondition); !strings.Contains(c.Message, "another ETCDSnapshotRestore") {
		t.Errorf("it does not say how machines start that are stopped: %s", c.Message)
	}
	later := save()
	later.CreationTimestamp = metav1.NewTime(in.Restored)
	in.Machines = []Machine{machine("a", rollout.ProgressApplied, false)}
	expect(t, later, in, operationv1.PhaseInProgress, "InProgress", "a")
}
