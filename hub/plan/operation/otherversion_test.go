package operation

import (
	"testing"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestStepOfAnotherVersion: a replica of an older hub that leads while replicas are replaced ends no operation whose step it does not know,
// and has no machine begin anything; those that have a task keep it. If no replica of the other version comes, the operation fails.
func TestStepOfAnotherVersion(t *testing.T) {
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	op := save()
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")
	newer := op.DeepCopy()
	newer.Status.Step = "Replicate"
	in.Machines[0].Has = true
	// It began to lead long after the step had begun.
	in.Since = begin.Add(time.Hour)
	in.Now = in.Since.Add(time.Second)
	expect(t, newer, in, operationv1.PhaseInProgress, ReasonWaitingForHub)
	if d := Decide(newer, in); d.Again != otherVersionTime-time.Second || !d.KeepTasks {
		t.Errorf("decides again after %s, and keeps tasks: %t", d.Again, d.KeepTasks)
	}
	in.Now = in.Since.Add(otherVersionTime)
	ended := newer.DeepCopy()
	expect(t, ended, in, operationv1.PhaseFailed, ReasonTimedOut)

	// A hub that knows the step goes on.
	newer.Status.Step = operationv1.StepSave
	expect(t, newer, in, operationv1.PhaseSucceeded, "Succeeded")
}
