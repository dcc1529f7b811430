package operation

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

var begin = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// machine is one with etcd that has applied its plan; has says whether that is the plan of the operation.
func machine(name string, progress rollout.Progress, has bool) Machine {
	return Machine{Machine: rollout.Machine{Name: name, Etcd: true, HasPlanSecret: true, Progress: progress}, Has: has}
}

func save() *operationv1.ETCDSnapshotSave {
	return &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)}}
}

// expect decides, and checks phase, reason and machines.
func expect(t *testing.T, op *operationv1.ETCDSnapshotSave, in Inputs, phase operationv1.Phase, reason string, run ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(Decide(op, in).Tasks))
	c := conditions.Get(op, operationv1.SucceededCondition)
	if op.Status.Phase != phase || c == nil || c.Reason != reason || !slices.Equal(got, run) {
		t.Fatalf("phase %s, run %v, %+v; want %s, %v, reason %s", op.Status.Phase, got, c, phase, run, reason)
	}
	if op.Status.Phase.Ended() != (op.Status.TerminatedAt != nil) || op.Status.Phase.Ended() != (c.Status != metav1.ConditionUnknown) {
		t.Errorf("phase %s, terminated at %v, condition %s", op.Status.Phase, op.Status.TerminatedAt, c.Status)
	}
}

func TestSnapshotSave(t *testing.T) {
	op := save()
	in := Inputs{Now: begin}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForCluster)
	in.Bootstrapped = true
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	worker := Machine{Machine: rollout.Machine{Name: "w", Worker: true, HasPlanSecret: true, Progress: rollout.ProgressApplied}}
	in.Machines = []Machine{machine("new", rollout.ProgressNone, false)}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	// A machine without a plan, which may never join, keeps no other one from saving its snapshot.
	in.Machines = append(in.Machines, machine("a", rollout.ProgressApplied, false), machine("b", rollout.ProgressApplying, false), worker)
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Machines[2].Progress = rollout.ProgressApplied
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a", "b")
	if op.Status.Step != operationv1.StepSave {
		t.Errorf("step %q", op.Status.Step)
	}
	// The plans with the instruction are delivered, and a is done; a machine that joins takes no part.
	in.Machines = []Machine{machine("a", rollout.ProgressApplied, true), machine("b", rollout.ProgressPending, true),
		machine("c", rollout.ProgressApplied, false)}
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "b")
	// What a machine has done stays done when it gets another plan.
	in.Machines[0] = machine("a", rollout.ProgressFailed, false)
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "b")
	in.Machines[1].Progress = rollout.ProgressApplied
	expect(t, op, in, operationv1.PhaseSucceeded, "Succeeded")
}

// TestSnapshotSaveWithoutNewMachines: a machine that never joined keeps no member from saving, whatever has become of its first plan. A
// member of which nothing is known at the moment takes part.
func TestSnapshotSaveWithoutNewMachines(t *testing.T) {
	joining := func(change func(*Machine)) Machine {
		m := machine("new", rollout.ProgressPending, false)
		m.Underway, m.Node = rollout.ChangeFirst, rollout.NodeAbsent
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		other Machine
		takes bool
	}{
		"pending":  {joining(func(*Machine) {}), false},
		"applying": {joining(func(m *Machine) { m.Progress = rollout.ProgressApplying }), false},
		"failed":   {joining(func(m *Machine) { m.Progress = rollout.ProgressFailed }), false},
		"not healthy yet": {joining(func(m *Machine) {
			m.Progress, m.Underway, m.Unhealthy = rollout.ProgressApplied, rollout.ChangeNone, []string{"etcd"}
		}), false},
		"of a cluster that is not reached": {joining(func(m *Machine) {
			m.Progress, m.Underway, m.Node = rollout.ProgressApplied, rollout.ChangeNone, rollout.NodeUnknown
		}), true},
		"failed, and has a Node": {joining(func(m *Machine) { m.Progress, m.Node = rollout.ProgressFailed, rollout.NodeReady }), true},
	} {
		t.Run(name, func(t *testing.T) {
			want := []string{"a"}
			if c.takes {
				want = append(want, "new")
			}
			in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false), c.other}}
			expect(t, save(), in, operationv1.PhaseInProgress, "InProgress", want...)
		})
	}
	op := save()
	expect(t, op, Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{joining(func(*Machine) {})}}, operationv1.PhasePending,
		ReasonWaitingForMachine)
	want := "Waiting for a machine with the role etcd to join the cluster"
	if got := conditions.GetMessage(op, operationv1.SucceededCondition); got != want {
		t.Errorf("got %q", got)
	}
}

func TestSnapshotSaveFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Inputs)
		text   string
	}{
		"plan failed":     {func(in *Inputs) { in.Machines[0] = machine("a", rollout.ProgressFailed, true) }, "The plan failed"},
		"plan canceled":   {func(in *Inputs) { in.Machines[0] = machine("a", rollout.ProgressCanceled, true) }, "canceled"},
		"machine deleted": {func(in *Inputs) { in.Machines[0].Deleting = true }, "deleted"},
		"machine is gone": {func(in *Inputs) { in.Machines = in.Machines[1:] }, "deleted"},
		"no answer":       {func(in *Inputs) { in.Now = in.Now.Add(snapshotTimeout) }, "not answered"},
		"failed elsewhere": {func(in *Inputs) {
			in.Machines[0] = machine("a", rollout.ProgressFailed, false)
			in.Now = in.Now.Add(snapshotTimeout)
		}, "not answered"},
	} {
		t.Run(name, func(t *testing.T) {
			op := save()
			in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false),
				machine("b", rollout.ProgressApplied, false)}}
			expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a", "b")
			in.Machines = []Machine{machine("a", rollout.ProgressApplying, true), machine("b", rollout.ProgressApplied, true)}
			c.change(&in)
			expect(t, op, in, operationv1.PhaseFailed, ReasonMachineFailed)
			if m := op.Status.Machines[0]; m.Phase != operationv1.PhaseFailed || !strings.Contains(m.Message, c.text) {
				t.Errorf("got %+v", m)
			}
			if m := op.Status.Machines[1]; m.Phase != operationv1.PhaseSucceeded {
				t.Errorf("b: got %+v", m)
			}
		})
	}
}

func TestSnapshotSaveOnOneMachine(t *testing.T) {
	op := save()
	op.Spec.MachineName = "b"
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressFailed, false),
		machine("b", rollout.ProgressApplied, false)}}
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "b")

	// One that is named is waited for.
	op = save()
	op.Spec.MachineName = "b"
	in.Machines[1].Progress = rollout.ProgressNone
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)

	op = save()
	op.Spec.MachineName = "worker"
	expect(t, op, in, operationv1.PhaseFailed, ReasonMachineNotFound)
}

func TestSnapshotSaveWaitsForALimitedTime(t *testing.T) {
	op := save()
	in := Inputs{Now: begin, Bootstrapped: true}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	in.Now = begin.Add(startTimeout - time.Minute)
	if d := Decide(op, in); d.Again != time.Minute {
		t.Errorf("decides again after %s", d.Again)
	}
	in.Now = begin.Add(startTimeout)
	expect(t, op, in, operationv1.PhaseFailed, ReasonTimedOut)
}

// TestSnapshotSaveWaitsForARestart: a machine that an upgrade has just restarted has no etcd to save yet. One that does not come back keeps
// nobody from saving.
func TestSnapshotSaveWaitsForARestart(t *testing.T) {
	op := save()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false),
		machine("b", rollout.ProgressApplied, false)}}
	in.Machines[0].HealthUnknown = []string{"etcd"}
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	if d := Decide(op, in); d.Again != startPatience {
		t.Errorf("decides again after %s", d.Again)
	}
	in.Machines[0].HealthUnknown, in.Machines[0].Unhealthy = nil, []string{"etcd"}
	in.Now = begin.Add(startPatience - time.Second)
	expect(t, op, in, operationv1.PhasePending, ReasonWaitingForMachine)
	healthy := op.DeepCopy()
	in.Machines[0].Unhealthy = nil
	expect(t, healthy, in, operationv1.PhaseInProgress, "InProgress", "a", "b")
	in.Machines[0].Unhealthy, in.Now = []string{"etcd"}, begin.Add(startPatience)
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a", "b")
}

func TestSnapshotSavePausedAndCanceled(t *testing.T) {
	op := save()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	op.Spec.Paused = true
	expect(t, op, in, operationv1.PhasePending, operationv1.PausedCondition)
	if !conditions.IsTrue(op, operationv1.PausedCondition) {
		t.Error("the condition Paused is not True")
	}
	in.Now = begin.Add(2 * startTimeout)
	expect(t, op, in, operationv1.PhasePending, operationv1.PausedCondition)
	op.Spec.Paused = false
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")
	op.Spec.Cancel = true
	expect(t, op, in, operationv1.PhaseCanceled, "Canceled")
}

// TestBreaks: while the hub did not run, or the operation was paused, no agent could answer. That time does not count.
func TestBreaks(t *testing.T) {
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{machine("a", rollout.ProgressApplied, false)}}
	op := save()
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")
	before := op.Status.DeepCopy()
	in.Now = begin.Add(time.Minute)
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")
	if diff := cmp.Diff(before, &op.Status); diff != "" {
		t.Errorf("the status changes while nothing does (-want +got):\n%s", diff)
	}
	in.Now = begin.Add(snapshotTimeout + time.Minute)
	in.Since = begin.Add(snapshotTimeout)
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")

	op.Spec.Paused = true
	in.Now = begin.Add(2 * snapshotTimeout)
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress")
	resumed := metav1.NewTime(begin.Add(5 * snapshotTimeout))
	op.Spec.Paused, in.Now = false, resumed.Add(time.Second)
	conditions.Get(op, operationv1.PausedCondition).LastTransitionTime = resumed
	expect(t, op, in, operationv1.PhaseInProgress, "InProgress", "a")
	in.Now = in.Now.Add(snapshotTimeout)
	expect(t, op, in, operationv1.PhaseFailed, ReasonMachineFailed)
}
