package operation

import (
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestNext: operations are carried out in their order, but one in progress goes on, a restore comes first, and one that is paused and has
// not begun holds up none.
func TestNext(t *testing.T) {
	op := func(paused bool, phase operationv1.Phase) operationv1.Operation {
		op := save()
		op.Spec.Paused, op.Status.Phase = paused, phase
		return op
	}
	restore := func(paused bool) operationv1.Operation {
		op := restoreOf("s")
		op.Spec.Paused = paused
		return op
	}
	for name, tc := range map[string]struct {
		waiting []operationv1.Operation
		want    int
	}{
		"the first":                        {[]operationv1.Operation{op(false, operationv1.PhasePending), op(false, "")}, 0},
		"the one in progress":              {[]operationv1.Operation{op(false, ""), op(false, operationv1.PhaseInProgress)}, 1},
		"a restore":                        {[]operationv1.Operation{op(false, ""), restore(false)}, 1},
		"in progress, before a restore":    {[]operationv1.Operation{restore(false), op(false, operationv1.PhaseInProgress)}, 1},
		"after a paused one":               {[]operationv1.Operation{op(true, operationv1.PhasePending), op(false, "")}, 1},
		"after a paused restore":           {[]operationv1.Operation{restore(true), op(false, operationv1.PhasePending)}, 1},
		"not after one that is running":    {[]operationv1.Operation{op(true, operationv1.PhaseInProgress), op(false, ""), restore(false)}, 0},
		"the first of several paused ones": {[]operationv1.Operation{op(true, ""), op(true, "")}, 0},
	} {
		if got := Next(tc.waiting); got != tc.waiting[tc.want] {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if Next(nil) != nil {
		t.Error("there is a next of none")
	}
}

// TestQueue: an operation that waits for another one says so, and has its time when its turn has come.
func TestQueue(t *testing.T) {
	op := save()
	for at := time.Duration(0); at < 3*startTimeout; at += startTimeout / 2 {
		Queue(op, begin.Add(at))
		if op.Status.Phase != operationv1.PhasePending || conditions.GetReason(op, operationv1.SucceededCondition) != ReasonWaitingForOperation {
			t.Fatalf("after %s: %+v", at, op.Status)
		}
	}
	in := Inputs{Now: begin.Add(3 * startTimeout), Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Now = in.Now.Add(startTimeout - time.Second)
	if d := Decide(op, in); op.Status.Phase != operationv1.PhasePending || d.Again != time.Second {
		t.Errorf("%s, decides again after %s", op.Status.Phase, d.Again)
	}
	in.Now = in.Now.Add(time.Second)
	expect(t, op, in, operationv1.PhaseFailed, ReasonTimedOut)
}

// TestTimeOfAnUpgrade: an operation that waits for machines that change one after the other has its time again with each of them.
func TestTimeOfAnUpgrade(t *testing.T) {
	op := save()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{server("a"), server("b"), server("c")}}
	for i := range in.Machines {
		in.Machines[i].Progress = rollout.ProgressApplying
	}
	for i := range 2 {
		expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
		in.Now = in.Now.Add(startTimeout)
		in.Machines[i].Progress = rollout.ProgressApplied
	}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Now = in.Now.Add(startTimeout)
	expect(t, op, in, operationv1.PhaseFailed, ReasonTimedOut)
}

// TestSuspend: an operation whose Cluster is paused says so, goes on where it was, and has its time from then on.
func TestSuspend(t *testing.T) {
	op := save()
	for at := time.Duration(0); at <= 2*startTimeout; at += startTimeout {
		Suspend(op, begin.Add(at))
		if op.Status.Phase != operationv1.PhasePending || conditions.GetReason(op, operationv1.SucceededCondition) != ReasonClusterPaused {
			t.Fatalf("after %s: %+v", at, op.Status)
		}
	}
	in := Inputs{Now: begin.Add(2 * startTimeout), Since: begin.Add(2 * startTimeout), Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Machines = []Machine{server("a")}
	expect(t, op, in, operationv1.PhaseInProgress, string(operationv1.PhaseInProgress), "a")
	step, machines := op.Status.Step, len(op.Status.Machines)
	op.Spec.Cancel = true
	Suspend(op, in.Now)
	if op.Status.Phase != operationv1.PhaseInProgress || op.Status.Step != step || len(op.Status.Machines) != machines ||
		conditions.GetReason(op, operationv1.SucceededCondition) != ReasonClusterPaused {
		t.Errorf("got %+v", op.Status)
	}
	if Decide(op, in); op.Status.Phase != operationv1.PhaseCanceled {
		t.Errorf("got %+v", op.Status)
	}
}

func TestQueuedOperationIsCanceledOrRefused(t *testing.T) {
	op := save()
	Queue(op, begin)
	op.Spec.Cancel = true
	Queue(op, begin)
	if op.Status.Phase != operationv1.PhaseCanceled || op.Status.TerminatedAt == nil {
		t.Errorf("got %+v", op.Status)
	}
	op = save()
	op.Spec.ClusterRef.Namespace = "other"
	Queue(op, begin)
	if op.Status.Phase != operationv1.PhaseFailed {
		t.Errorf("got %+v", op.Status)
	}
}

// TestTimeOfAPauseDoesNotCount: an operation that is continued has its time again.
func TestTimeOfAPauseDoesNotCount(t *testing.T) {
	op := save()
	op.Spec.Paused = true
	in := Inputs{Now: begin, Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Now = begin.Add(2 * startTimeout)
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	op.Spec.Paused = false
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Now = in.Now.Add(startTimeout)
	expect(t, op, in, operationv1.PhaseFailed, ReasonTimedOut)
}

// TestTimeOfAHubThatStarts: an operation that a hub sees for the first time, or again after it was down for long, has its time from then
// on: machines may have no report yet.
func TestTimeOfAHubThatStarts(t *testing.T) {
	op := save()
	at := begin.Add(2 * startTimeout)
	in := Inputs{Now: at, Since: at, Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	at = at.Add(2 * startTimeout)
	in.Now, in.Since = at, at.Add(-time.Second)
	if expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine); !op.Status.LastUpdated.Time.Equal(begin.Add(2 * startTimeout)) {
		t.Errorf("got %+v", op.Status)
	}
	in.Now = in.Since.Add(startTimeout)
	expect(t, op, in, operationv1.PhaseFailed, ReasonTimedOut)

	// The hub waited for the infrastructure of the cluster, and did not look at operations.
	op = save()
	in = Inputs{Now: begin.Add(2 * startTimeout), Since: begin, Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
}
