package operation

import (
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// A restore that is canceled while its data runs says that machines may still be stopped, and how to go on without losing what was written.
func TestRestoreCanceledBeforeAllStart(t *testing.T) {
	op := restoreOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b"), worker("w")}}
	for range 10 {
		if op.Status.Step == operationv1.StepInitialRestartCluster {
			break
		}
		done(&in, Decide(op, in))
	}
	if op.Status.Step != operationv1.StepInitialRestartCluster {
		t.Fatalf("got %+v", op.Status)
	}
	op.Spec.Cancel = true
	Decide(op, in)
	message := conditions.Get(op, operationv1.SucceededCondition).Message
	for _, part := range []string{"runs on a", "stay stopped", "delete and replace those Machines, which loses nothing",
		"Nodes that have no Machine"} {
		if op.Status.Phase != operationv1.PhaseCanceled || !strings.Contains(message, part) {
			t.Errorf("got %s without %q: %s", op.Status.Phase, part, message)
		}
	}
}
