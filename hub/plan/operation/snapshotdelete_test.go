package operation

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func deleteOf(name string) *operationv1.ETCDSnapshotDelete {
	op := &operationv1.ETCDSnapshotDelete{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)}}
	op.Spec.Args.Name = name
	return op
}

func listedOn(name string) Deletion {
	return Deletion{Found: true, Followed: true, Listed: true, Machine: name, Node: "node-" + name,
		File: operationv1.DeletedSnapshot{Name: "f", Location: "file:///snapshots/f"}}
}

func listedInBucket() Deletion {
	return Deletion{Found: true, Followed: true, Listed: true, InBucket: true,
		File: operationv1.DeletedSnapshot{Name: "f", Location: "s3://b/f"}}
}

// expectDelete decides, and checks phase, reason, message and the machines that delete.
func expectDelete(t *testing.T, op *operationv1.ETCDSnapshotDelete, in Inputs, phase operationv1.Phase, reason, text string,
	run ...string) Decision {
	t.Helper()
	d := Decide(op, in)
	got := slices.Sorted(maps.Keys(d.Tasks))
	c := conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != phase || c == nil || c.Reason != reason || !strings.Contains(c.Message, text) || !slices.Equal(got, run) {
		t.Fatalf("phase %s, run %v, %+v; want %s, %v, reason %s, %q", op.Status.Phase, got, c, phase, run, reason, text)
	}
	for name, task := range d.Tasks {
		if task != (Task{Step: operationv1.StepDelete, Name: TaskDeleteSnapshot}) {
			t.Errorf("%s: %+v", name, task)
		}
	}
	return d
}

func TestSnapshotDelete(t *testing.T) {
	op := deleteOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Connected: true, Deletion: listedOn("b"),
		Machines: []Machine{machine("a", rollout.ProgressApplied, false), machine("b", rollout.ProgressApplying, false)}}
	expectDelete(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine, "b to apply the plan")
	in.Machines[1].Progress = rollout.ProgressApplied
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Waiting for b to delete the snapshot", "b")
	if op.Status.Step != operationv1.StepDelete || op.Status.MachineName != "b" || *op.Status.Snapshot != in.Deletion.File {
		t.Errorf("got %+v", op.Status)
	}
	// What is deleted does not change any more.
	in.Deletion = listedOn("a")
	in.Deletion.File.Name = "other"
	in.Machines[1].Has, in.Machines[1].Progress = true, rollout.ProgressPending
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "b")
	in.Machines[1].Progress = rollout.ProgressApplied
	d := expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Waiting for the cluster to remove f from its list")
	if op.Status.Step != operationv1.StepCleanup || d.DeleteSnapshot || d.Again != listInterval {
		t.Errorf("%+v in step %s", d, op.Status.Step)
	}
	in.Deletion.Listed = false
	if d = expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Deleting ETCDSnapshot s"); !d.DeleteSnapshot {
		t.Errorf("got %+v", d)
	}
	in.Deletion = Deletion{}
	if d = expectDelete(t, op, in, operationv1.PhaseSucceeded, "Succeeded", "The snapshot f was deleted on b"); d.DeleteSnapshot {
		t.Errorf("got %+v", d)
	}
}

// TestSnapshotDeleteWaitsForTheStart: a server that starts lists no snapshots; one that does not become healthy is tried in the end.
func TestSnapshotDeleteWaitsForTheStart(t *testing.T) {
	for name, of := range map[string]Deletion{"a": listedOn("a"), "in a bucket": listedInBucket()} {
		op := deleteOf("s")
		in := Inputs{Now: begin, Bootstrapped: true, Connected: true, Deletion: of,
			Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
		in.Machines[0].Unhealthy = []string{"etcd"}
		if d := expectDelete(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine, "a to be healthy"); d.Again > startPatience {
			t.Errorf("%s: got %+v", name, d)
		}
		in.Now = begin.Add(startPatience)
		expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Waiting for a to delete the snapshot", "a")
	}
}

// TestSnapshotDeleteWaitsForSpecification: the bucket of the Cluster may have been written a moment ago.
func TestSnapshotDeleteWaitsForSpecification(t *testing.T) {
	op := deleteOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Connected: true, Deletion: listedInBucket(),
		Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	in.Deletion.Unreachable = "the cluster has no bucket"
	if d := expectDelete(t, op, in, operationv1.PhasePending, ReasonWaitingForCluster, "has no bucket"); d.Again != specPatience {
		t.Errorf("decided again after %s", d.Again)
	}
	in.Now = begin.Add(specPatience)
	expectDelete(t, op, in, operationv1.PhaseFailed, ReasonSnapshotInvalid, "has no bucket")
}

// What the name stands for now may be the snapshot of another cluster.
func TestSnapshotDeleteLeavesAnotherSnapshot(t *testing.T) {
	op := deleteOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("a"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "a")
	in.Machines[0].Has = true
	in.Deletion = Deletion{Found: true, Problem: "is of another"}
	if d := expectDelete(t, op, in, operationv1.PhaseSucceeded, "Succeeded", "deleted on a"); d.DeleteSnapshot {
		t.Errorf("got %+v", d)
	}
}

func TestSnapshotDeleteRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*Inputs)
		phase        operationv1.Phase
		reason, text string
	}{
		"no ETCDSnapshot": {func(in *Inputs) { in.Deletion = Deletion{} }, operationv1.PhaseFailed, ReasonSnapshotInvalid, "s does not exist"},
		"of another":      {func(in *Inputs) { in.Deletion.Problem = "is of c" }, operationv1.PhaseFailed, ReasonSnapshotInvalid, "is of c"},
		"listed elsewhere": {func(in *Inputs) { in.Deletion.Unreachable = "it is in bucket x" }, operationv1.PhaseFailed, ReasonSnapshotInvalid,
			"The file of ETCDSnapshot s cannot be deleted: it is in bucket x"},
		"no Machine": {func(in *Inputs) { in.Machines = nil }, operationv1.PhaseFailed, ReasonMachineNotFound,
			"is on Node node-a, and the cluster"},
		"no etcd": {func(in *Inputs) { in.Machines[0].Etcd = false }, operationv1.PhaseFailed, ReasonMachineNotFound, "with the role etcd"},
		"Machine in deletion": {func(in *Inputs) { in.Machines[0].Deleting = true }, operationv1.PhasePending, ReasonWaitingForMachine,
			"Waiting for Machine a"},
		"in a bucket, no machine": {func(in *Inputs) { in.Deletion, in.Machines = listedInBucket(), nil }, operationv1.PhasePending,
			ReasonWaitingForMachine, "a machine with the role etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			op := deleteOf("s")
			in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("a"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
			c.change(&in)
			expectDelete(t, op, in, c.phase, c.reason, c.text)
		})
	}
}

// A file that nobody can reach: its ETCDSnapshot goes, and the operation says so.
func TestSnapshotDeleteUnreachable(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Deletion)
		text   string
	}{
		"the node is gone": {func(*Deletion) {}, "The file f cannot be reached: it is on Node node-b, which has no Machine"},
		"another bucket":   {func(d *Deletion) { d.InBucket, d.Unreachable = true, "it is at s3://x/f" }, "cannot be reached: it is at s3://x/f"},
	} {
		t.Run(name, func(t *testing.T) {
			op := deleteOf("s")
			in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("b"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
			in.Deletion.Listed = false
			c.change(&in.Deletion)
			if d := expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "to reach the cluster's API"); d.DeleteSnapshot {
				t.Errorf("got %+v", d)
			}
			in.Connected = true
			if d := expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Deleting ETCDSnapshot s"); !d.DeleteSnapshot ||
				op.Status.Step != operationv1.StepCleanup || op.Status.MachineName != "" || op.Status.Unreachable == "" {
				t.Errorf("%+v, %+v", d, op.Status)
			}
			in.Deletion = Deletion{}
			expectDelete(t, op, in, operationv1.PhaseSucceeded, "Succeeded", c.text)
		})
	}
}

// A missing file whose machine is there is looked for on the machine: the list may be wrong.
func TestSnapshotDeleteMissing(t *testing.T) {
	op := deleteOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("a"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	in.Deletion.Listed = false
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "a")
}

func TestSnapshotDeleteInBucket(t *testing.T) {
	seen := func(name string) Machine {
		m := machine(name, rollout.ProgressApplied, false)
		m.LastSeen = begin
		return m
	}
	busy := seen("a")
	busy.Progress = rollout.ProgressApplying
	op := deleteOf("s")
	in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedInBucket(),
		Machines: []Machine{busy, machine("b", rollout.ProgressApplied, false), seen("c"), seen("d"), seen("e")}}
	in.Deletion.Machine = "c" // has the file that was copied
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "d")
	// Another one does it when that one is deleted.
	in.Machines[3].Has, in.Machines[3].Deleting = true, true
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "e")
	in.Machines[4].Has = true
	in.Deletion = Deletion{}
	expectDelete(t, op, in, operationv1.PhaseSucceeded, "Succeeded", "The snapshot f was deleted from S3")

	op = deleteOf("s")
	in = Inputs{Now: begin, Bootstrapped: true, Deletion: listedInBucket(), Machines: []Machine{seen("c")}}
	in.Deletion.Machine = "c"
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "c")
}

func TestSnapshotDeleteFails(t *testing.T) {
	start := func() (*operationv1.ETCDSnapshotDelete, Inputs) {
		op := deleteOf("s")
		in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("a"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
		expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "a")
		in.Machines[0].Has = true
		return op, in
	}
	op, in := start()
	in.Machines[0].Progress = rollout.ProgressFailed
	expectDelete(t, op, in, operationv1.PhaseFailed, ReasonMachineFailed, "The file may be there still")

	op, in = start()
	in.Now, in.Machines[0].Progress = begin.Add(DeleteTimeout), rollout.ProgressPending
	expectDelete(t, op, in, operationv1.PhaseFailed, ReasonMachineFailed, "failed on a")

	// The machine is deleted, and the file with it: the operation goes on, and says so.
	op, in = start()
	in.Machines[0].Deleting = true
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "to remove f from its list")
	in.Deletion.Listed, in.Machines, in.Connected = false, nil, true
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "Deleting ETCDSnapshot s")
	in.Deletion = Deletion{}
	expectDelete(t, op, in, operationv1.PhaseSucceeded, "Succeeded", "cannot be reached: Machine a, which has it, was deleted")

	// The hub does not hear of the list.
	op, in = start()
	if d := expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "to remove f"); d.Again != hubInterval {
		t.Errorf("looks again after %s", d.Again)
	}
	in.Now = begin.Add(cleanupTimeout)
	expectDelete(t, op, in, operationv1.PhaseFailed, ReasonTimedOut, "from its list of snapshots. The file is deleted")

	// The Machine was deleted, and is there still.
	op, in = start()
	in.Machines[0].Deleting = true
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "to remove f from its list")
	in.Now = begin.Add(cleanupTimeout)
	expectDelete(t, op, in, operationv1.PhaseFailed, ReasonTimedOut, "The file may be there still: Machine a")
}

func TestSnapshotDeletePausedAndCanceled(t *testing.T) {
	op := deleteOf("s")
	op.Spec.Paused = true
	in := Inputs{Now: begin, Bootstrapped: true, Deletion: listedOn("a"), Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	expectDelete(t, op, in, operationv1.PhasePending, operationv1.PausedCondition, "")
	op.Spec.Paused = false
	expectDelete(t, op, in, operationv1.PhaseInProgress, "InProgress", "", "a")
	op.Spec.Cancel = true
	expectDelete(t, op, in, operationv1.PhaseCanceled, "Canceled", "what a machine had begun goes on. The file may be there still")

	op = deleteOf("s")
	stopped := in
	stopped.Stopped = true
	expectDelete(t, op, stopped, operationv1.PhasePending, ReasonWaitingForCluster, "to be restored")
}

// A snapshot that is to be restored, or is being restored, is kept.
func TestRefuseInUse(t *testing.T) {
	restore := restoreOf("s")
	restore.Name = "back"
	running := restoreOf("s")
	running.Status.Phase = operationv1.PhaseInProgress
	for name, c := range map[string]struct {
		other   operationv1.Operation
		change  func(*operationv1.ETCDSnapshotDelete)
		refused bool
	}{
		"queued":         {other: restore, refused: true},
		"in progress":    {other: running, refused: true},
		"another one":    {other: restoreOf("t")},
		"no restore":     {other: save()},
		"canceled":       {other: restore, change: func(op *operationv1.ETCDSnapshotDelete) { op.Spec.Cancel = true }},
		"it has begun":   {other: restore, change: func(op *operationv1.ETCDSnapshotDelete) { op.Status.Phase = operationv1.PhaseInProgress }},
		"it has ended":   {other: restore, change: func(op *operationv1.ETCDSnapshotDelete) { op.Status.Phase = operationv1.PhaseSucceeded }},
		"it was waiting": {other: restore, refused: true, change: func(op *operationv1.ETCDSnapshotDelete) { Queue(op, begin) }},
	} {
		t.Run(name, func(t *testing.T) {
			op := deleteOf("s")
			if c.change != nil {
				c.change(op)
			}
			if got := RefuseInUse(op, []operationv1.Operation{save(), op, c.other}, begin.Add(time.Minute)); got != c.refused {
				t.Fatalf("refused: %v", got)
			}
			reason := conditions.GetReason(op, operationv1.SucceededCondition)
			if c.refused && (op.Status.Phase != operationv1.PhaseFailed || reason != ReasonSnapshotInUse || op.Status.TerminatedAt == nil) {
				t.Errorf("got %+v", op.Status)
			}
		})
	}
	if RefuseInUse(restore, []operationv1.Operation{restore}, begin) {
		t.Error("a restore is refused")
	}
}
