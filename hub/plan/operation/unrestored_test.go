package operation

import (
	"strings"
	"testing"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// TestRestoreUnchangedInShutdown: a restore that ends before it has given any machine the task to stop has changed nothing.
func TestRestoreUnchangedInShutdown(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operationv1.ETCDSnapshotRestore, *Inputs)
		want   bool
	}{
		"no machine has the task":    {func(*operationv1.ETCDSnapshotRestore, *Inputs) {}, true},
		"a machine has the task":     {func(_ *operationv1.ETCDSnapshotRestore, in *Inputs) { in.Machines[1].Has = true }, false},
		"a machine was stopped":      {func(op *operationv1.ETCDSnapshotRestore, _ *Inputs) { op.Status.Machines[1].Phase = "Succeeded" }, false},
		"one was stopped before":     {func(_ *operationv1.ETCDSnapshotRestore, in *Inputs) { in.Stopped = true }, false},
		"the machines are not known": {func(_ *operationv1.ETCDSnapshotRestore, in *Inputs) { in.Machines = nil }, false},
	} {
		op := restoreOf("s")
		in := Inputs{Now: begin, Bootstrapped: true, Snapshot: onMachine("a"), Machines: []Machine{server("a"), server("b")}}
		done(&in, Decide(op, in))
		if Decide(op, in); op.Status.Step != operationv1.StepShutdown || len(op.Status.Machines) != 2 {
			t.Fatalf("%s: got %+v", name, op.Status)
		}
		tc.change(op, &in)
		op.Spec.Cancel = true
		Decide(op, in)
		text := conditions.GetMessage(op, operationv1.SucceededCondition)
		if op.Status.Phase != operationv1.PhaseCanceled || op.Status.Unchanged != tc.want ||
			strings.Contains(text, "Nothing was stopped") != tc.want {
			t.Errorf("%s: got %+v", name, op.Status)
		}
	}
}

// TestTokenRotationWaitsForRestore: the plans with which a TokenRotation restarts servers have the configuration of the Cluster, which may
// be that of a snapshot whose data was not restored. It says what to do, also where an earlier one has left a token.
func TestTokenRotationWaitsForRestore(t *testing.T) {
	for _, pending := range []bool{false, true} {
		op := newTokenRotation()
		in := Inputs{Now: begin, Bootstrapped: true, Unrestored: true, TokenPending: pending, Machines: []Machine{runningServer("a", "ec", "")}}
		d, c := Decide(op, in), conditions.Get(op, operationv1.SucceededCondition)
		if op.Status.Phase != operationv1.PhasePending || c.Reason != ReasonSnapshotNotRestored || len(d.Tasks) > 0 ||
			!strings.Contains(c.Message, "set the configuration back and remove spec.rkeConfig.etcdSnapshotRestore") {
			t.Errorf("got %+v, %v", c, d.Tasks)
		}
		in.Unrestored = false
		if d := Decide(op, in); op.Status.Step != operationv1.StepRotateToken || len(d.Tasks) != 1 {
			t.Errorf("restored: got %+v", op.Status)
		}
	}
	// What restarts servers with the plans that they have begins.
	op := rotate()
	in := Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Unrestored: true, Machines: []Machine{runningServer("a", "ec", "")}}
	if d := Decide(op, in); op.Status.Phase != operationv1.PhaseInProgress || len(d.Tasks) != 1 {
		t.Errorf("got %+v", op.Status)
	}
}

// TestTokenRotationEndsForRestore: one that is in progress writes the token that a server has, and ends before it restarts servers: the
// restore begins when it has ended.
func TestTokenRotationEndsForRestore(t *testing.T) {
	op := newTokenRotation()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{runningServer("a", "ec", ""), runningServer("b", "ec", "")}}
	for _, want := range []string{operationv1.StepRotateToken, operationv1.StepConfigure} {
		d := Decide(op, in)
		if op.Status.Step != want || len(d.Tasks) == 0 {
			t.Fatalf("in step %s, want %s: %+v", op.Status.Step, want, op.Status)
		}
		in.Unrestored = true
		done(&in, d)
	}
	d, c := Decide(op, in), conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != operationv1.PhaseFailed || c.Reason != ReasonSnapshotNotRestored || len(d.Tasks) > 0 ||
		!strings.Contains(c.Message, "data was not restored. The shared data is encrypted with the new token") {
		t.Errorf("got %+v, %v", c, d.Tasks)
	}
}
