package operation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestHoldFor: an operation says what its control plane waits for, which changes nothing else of it, and has its time from the end of that.
func TestHoldFor(t *testing.T) {
	const reason, text = "TokensLost", "Secret prod-rke-state is missing"
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	running := save()
	expect(t, running, in, operationv1.PhaseInProgress, "InProgress", "a")
	for name, c := range map[string]struct {
		op    *operationv1.ETCDSnapshotSave
		phase operationv1.Phase
		step  string
	}{
		"new":         {save(), operationv1.PhasePending, ""},
		"in progress": {running, operationv1.PhaseInProgress, operationv1.StepSave},
	} {
		t.Run(name, func(t *testing.T) {
			HoldFor(c.op, begin, reason, text)
			got := conditions.Get(c.op, operationv1.SucceededCondition)
			if c.op.Status.Phase != c.phase || c.op.Status.Step != c.step || got.Reason != reason || got.Message != heldPrefix+text {
				t.Fatalf("got %+v", c.op.Status)
			}
			before := c.op.Status.DeepCopy()
			HoldFor(c.op, begin.Add(time.Minute), reason, text)
			if diff := cmp.Diff(before, &c.op.Status); diff != "" {
				t.Errorf("the status changes while nothing does (-want +got):\n%s", diff)
			}
			later := in
			later.Now = begin.Add(3 * startTimeout)
			expect(t, c.op, later, operationv1.PhaseInProgress, "InProgress", "a")
			later.Now = later.Now.Add(snapshotTimeout)
			expect(t, c.op, later, operationv1.PhaseFailed, ReasonMachineFailed)
		})
	}
	canceled := save()
	canceled.Spec.Cancel = true
	if HoldFor(canceled, begin, reason, text); canceled.Status.Phase != operationv1.PhaseCanceled || canceled.Status.TerminatedAt == nil {
		t.Errorf("got %+v", canceled.Status)
	}
}
