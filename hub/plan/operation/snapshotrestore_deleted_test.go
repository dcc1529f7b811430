package operation

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// A server whose Machine is deleted after a restore has begun would run on, since nothing is delivered to it: nothing is stopped then.
func TestRestoreEndsWhenAServerIsDeleted(t *testing.T) {
	for step, want := range map[string]operationv1.Phase{
		operationv1.StepPreflight: operationv1.PhaseFailed, operationv1.StepShutdown: operationv1.PhaseInProgress,
	} {
		op := restoreOf("s")
		in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b"), worker("w")}}
		Decide(op, in)
		op.Status.Step = step
		in.Machines[1].Deleting, in.Now = true, begin.Add(time.Second)
		Decide(op, in)
		got := conditions.Get(op, operationv1.SucceededCondition).Message
		if failed := want == operationv1.PhaseFailed; op.Status.Phase != want ||
			failed != (strings.Contains(got, "b, which would not be stopped") && strings.Contains(got, "Nothing was stopped")) {
			t.Errorf("%s: got %s, %q", step, op.Status.Phase, got)
		}
	}
}

// A machine that is being deleted, and was last seen while the hub's clock was ahead, holds up no restore until the clock has caught up.
func TestSeenWhileTheClockWasAhead(t *testing.T) {
	for ago, runs := range map[time.Duration]bool{0: true, -time.Second: true, time.Hour: false, -14 * time.Hour: false} {
		m := server("a")
		m.Deleting, m.LastSeen = true, begin.Add(-ago)
		running, silent, _ := stillRunning(Inputs{Now: begin, Machines: []Machine{m}})
		if (len(running) == 1) != runs || len(running)+len(silent) != 1 {
			t.Errorf("seen %s ago: %v still run, %v are silent", ago, running, silent)
		}
	}
}
