package operation

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

func newTokenRotation() *operationv1.TokenRotation {
	return &operationv1.TokenRotation{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)}}
}

func TestTokenRotation(t *testing.T) {
	op := newTokenRotation()
	init, worker := runningServer("b", "ec", ""), runningServer("w", "", "")
	init.Init, worker.Worker = true, true
	down := runningServer("down", "", "")
	down.ProbesPassed, down.Unhealthy = false, []string{"kubelet"}
	lost := runningServer("lost", "", "") // was healthy when it was last heard of
	lost.Worker, lost.Node = true, rollout.NodeLost
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{runningServer("a", "e", ""), init, runningServer("c", "c", ""), worker,
		down, lost}}
	var steps []string
	for range 10 {
		tasks := Decide(op, Inputs{Now: in.Now, Bootstrapped: true, Machines: slices.Clone(in.Machines)}).Tasks
		if len(tasks) == 0 {
			break
		}
		for i := range in.Machines {
			_, in.Machines[i].Has = tasks[in.Machines[i].Name]
		}
		steps = append(steps, op.Status.Step+" "+strings.Join(slices.Sorted(maps.Keys(tasks)), ","))
		if got := tasks["b"]; op.Status.Step == operationv1.StepRestartServers != got.Rendered {
			t.Errorf("the step %s has the task %+v", op.Status.Step, got)
		}
	}
	if want := []string{"RotateToken b", "Configure a,b,c,w", "RestartServers a,b,c"}; !slices.Equal(steps, want) {
		t.Errorf("got %q", steps)
	}
	if op.Status.Phase != operationv1.PhaseSucceeded {
		t.Errorf("got %+v", op.Status)
	}
}

// TestTokenRotationIsCanceledAfterItsFirstStep: a server that has begun to take the new token is waited for, so that the hub knows which
// one the data is encrypted with.
func TestTokenRotationIsCanceledAfterItsFirstStep(t *testing.T) {
	op := newTokenRotation()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{runningServer("a", "ec", "")}}
	decide := func() map[string]Task {
		return Decide(op, Inputs{Now: in.Now, Bootstrapped: true, Machines: slices.Clone(in.Machines)}).Tasks
	}
	decide()
	in.Machines[0].Has, in.Machines[0].Progress, op.Spec.Cancel = true, rollout.ProgressApplying, true
	if tasks := decide(); len(tasks) != 1 || op.Status.Step != operationv1.StepRotateToken {
		t.Fatalf("got %v, %+v", tasks, op.Status)
	}
	in.Machines[0].Progress = rollout.ProgressApplied
	decide()
	if op.Status.Step != operationv1.StepConfigure || !TokenRotated(op) {
		t.Fatalf("got %+v", op.Status)
	}
	in.Machines[0].Has = false
	if decide(); op.Status.Phase != operationv1.PhaseCanceled {
		t.Errorf("got %+v", op.Status)
	}
}

// TestTokenPending: while a server may have a token that the hub does not have, no other operation restarts servers, no change does, and
// another TokenRotation begins although servers wait for it.
func TestTokenPending(t *testing.T) {
	in := Inputs{Now: begin, Bootstrapped: true, TokenPending: true, Machines: []Machine{runningServer("a", "ec", ""),
		runningServer("b", "ec", "")}}
	in.Machines[1].ProbesPassed, in.Machines[1].Unhealthy, in.Machines[1].Change = false, []string{"etcd"}, rollout.ChangeRestart
	for _, op := range []operationv1.Operation{rotate(), &operationv1.EncryptionKeyRotation{ObjectMeta: metav1.ObjectMeta{
		CreationTimestamp: metav1.NewTime(begin)}}} {
		Decide(op, in)
		if c := conditions.Get(op, operationv1.SucceededCondition); op.CommonStatus().Phase != operationv1.PhasePending ||
			!strings.Contains(c.Message, "another TokenRotation") {
			t.Errorf("%T: got %+v", op, c)
		}
	}
	if Holds(nil, true) == "" || Holds(save(), true) == "" || Holds(save(), false) != "" {
		t.Error("changes do not wait")
	}
	op := newTokenRotation()
	if d := Decide(op, in); op.Status.Step != operationv1.StepRotateToken || op.Status.Leader != "a" || len(d.Tasks) != 1 {
		t.Errorf("got %+v", op.Status)
	}
}

func TestTokenRotationCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Inputs)
		phase  operationv1.Phase
		reason string
	}{
		"old release": {func(in *Inputs) { in.Machines[1].Version = "v1.28.9+k3s1" },
			operationv1.PhasePending, ReasonWaitingForCluster},
		"is being upgraded": {func(in *Inputs) { in.Machines[1].Version, in.Machines[1].WantVersion = "v1.28.9+k3s1", "v1.30.14+k3s1" },
			operationv1.PhasePending, ReasonWaitingForMachine},
		"unmanaged":      {func(in *Inputs) { in.UnmanagedConfig = true }, operationv1.PhaseFailed, ReasonUnmanagedConfig},
		"pending change": {func(in *Inputs) { in.Machines[1].Change = rollout.ChangeDrain }, operationv1.PhasePending, ReasonWaitingForMachine},
		"a server is down": {func(in *Inputs) { in.Machines[1].ProbesPassed, in.Machines[1].Unhealthy = false, []string{"etcd"} },
			operationv1.PhasePending, ReasonWaitingForMachine},
	} {
		t.Run(name, func(t *testing.T) {
			op := newTokenRotation()
			in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{runningServer("a", "ec", ""), runningServer("b", "ec", "")}}
			c.change(&in)
			Decide(op, in)
			if got := conditions.GetReason(op, operationv1.SucceededCondition); op.Status.Phase != c.phase || got != c.reason {
				t.Errorf("phase %s, reason %s", op.Status.Phase, got)
			}
		})
	}
}

// A release that stays too old is refused, also where a user asks for it who upgrades at the same time.
func TestTokenRotationNotSupported(t *testing.T) {
	op := newTokenRotation()
	in := Inputs{Now: begin, Bootstrapped: true, Machines: []Machine{runningServer("a", "ec", "v1.28.9+k3s1")}}
	in.Machines[0].WantVersion = "v1.28.9+k3s1"
	if d := Decide(op, in); op.Status.Phase != operationv1.PhasePending || d.Again != specPatience {
		t.Errorf("again after %s: %+v", d.Again, op.Status)
	}
	in.Now = begin.Add(specPatience)
	if Decide(op, in); op.Status.Phase != operationv1.PhaseFailed ||
		conditions.GetReason(op, operationv1.SucceededCondition) != ReasonNotSupported {
		t.Errorf("got %+v", op.Status)
	}
}
