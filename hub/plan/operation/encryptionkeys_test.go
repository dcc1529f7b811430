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

// runningServer is one that works; roles are e for etcd and c for the control plane.
func runningServer(name, roles, version string) Machine {
	return Machine{Machine: rollout.Machine{Name: name, HasPlanSecret: true, Progress: rollout.ProgressApplied, ProbesPassed: true,
		Etcd: strings.Contains(roles, "e"), ControlPlane: strings.Contains(roles, "c"), Version: version}}
}

// rotation is an EncryptionKeyRotation whose machines do what they are given.
type rotation struct {
	t  *testing.T
	op *operationv1.EncryptionKeyRotation
	in Inputs
}

func newRotation(t *testing.T, machines ...Machine) *rotation {
	op := &operationv1.EncryptionKeyRotation{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)}}
	return &rotation{t, op, Inputs{Now: begin, Bootstrapped: true, Machines: machines}}
}

// decide decides once, and delivers the tasks.
func (r *rotation) decide() (tasks map[string]Task) {
	tasks = Decide(r.op, Inputs{Now: r.in.Now, Bootstrapped: r.in.Bootstrapped, Machines: slices.Clone(r.in.Machines)}).Tasks
	for i := range r.in.Machines {
		_, r.in.Machines[i].Has = tasks[r.in.Machines[i].Name]
	}
	return tasks
}

// steps goes on to the end, and returns each step with the machines that took part.
func (r *rotation) steps() (steps []string) {
	r.t.Helper()
	for range 20 {
		tasks := r.decide()
		if len(tasks) == 0 {
			return steps
		}
		steps = append(steps, r.op.Status.Step+" "+strings.Join(slices.Sorted(maps.Keys(tasks)), ","))
	}
	r.t.Fatalf("no end: %v", steps)
	return nil
}

func (r *rotation) expect(phase operationv1.Phase, text string) {
	r.t.Helper()
	c := conditions.Get(r.op, operationv1.SucceededCondition)
	if r.op.Status.Phase != phase || c == nil || !strings.Contains(c.Message, text) {
		r.t.Errorf("phase %s, %+v", r.op.Status.Phase, c)
	}
}

func TestEncryptionKeyRotation(t *testing.T) {
	const old, recent = "v1.30.4+k3s1", "v1.36.3+k3s1"
	init := runningServer("b", "ec", recent)
	init.Init = true
	etcd := runningServer("e", "e", recent)
	for name, c := range map[string]struct {
		machines []Machine
		want     []string
	}{
		"one command": {[]Machine{runningServer("a", "ec", recent), init, etcd},
			[]string{"Rotate b", "Restart a,b,e", "Verify a,b"}},
		"one server": {[]Machine{init}, []string{"Rotate b", "Verify b"}},
		"the init node has etcd alone": {[]Machine{runningServer("a", "e", recent), runningServer("c", "c", recent)},
			[]string{"Rotate c", "Restart a,c", "Verify c"}},
		"one server of an old release": {[]Machine{runningServer("a", "ec", recent), runningServer("b", "ec", old)},
			[]string{"Prepare a", "PostPrepareRestart a,b",
				"RotatePrepared a", "PostRotateRestart a,b", "Reencrypt a", "PostReencryptRestart a,b", "Verify a,b"}},
	} {
		t.Run(name, func(t *testing.T) {
			worker := Machine{Machine: rollout.Machine{Name: "w", Worker: true, HasPlanSecret: true}}
			r := newRotation(t, append(c.machines, worker)...)
			if got := r.steps(); !slices.Equal(got, c.want) {
				t.Errorf("got %q", got)
			}
			r.expect(operationv1.PhaseSucceeded, "new key")
		})
	}
}

// An upgrade that is asked for in the middle does not change the steps.
func TestEncryptionKeyRotationKeepsItsSteps(t *testing.T) {
	r := newRotation(t, runningServer("a", "ec", "v1.30.4+k3s1"))
	r.decide()
	r.in.Machines[0].Version = "v1.36.3+k3s1"
	if got := r.steps(); len(got) != 6 || got[0] != "PostPrepareRestart a" {
		t.Errorf("got %q", got)
	}
}

func TestEncryptionKeyRotationWaitsForServers(t *testing.T) {
	r := newRotation(t, runningServer("a", "e", ""))
	r.decide()
	r.expect(operationv1.PhasePending, "Waiting for a machine with the role control-plane")
	r.in.Machines = []Machine{runningServer("a", "ec", ""), runningServer("b", "ec", "")}
	r.in.Machines[1].Progress = rollout.ProgressApplying
	r.decide()
	r.expect(operationv1.PhasePending, "Waiting for b to apply the plan")
	r.in.Machines[1] = runningServer("b", "ec", "")
	r.in.Machines[1].ProbesPassed, r.in.Machines[1].Unhealthy = false, []string{"etcd"}
	r.decide()
	r.expect(operationv1.PhasePending, "Waiting for b to be healthy")
	r.in.Machines[1] = runningServer("b", "ec", "")
	r.in.Machines[1].Change = rollout.ChangeDrain
	r.decide()
	r.expect(operationv1.PhasePending, "Waiting for b to have the configuration")
	// One that has not joined is not waited for.
	r.in.Machines[1] = Machine{Machine: rollout.Machine{Name: "b", Etcd: true, ControlPlane: true}}
	if tasks := r.decide(); len(tasks) != 1 || r.op.Status.Leader != "a" {
		t.Errorf("tasks %v, leader %q", tasks, r.op.Status.Leader)
	}
}

func TestEncryptionKeyRotationLosesItsLeader(t *testing.T) {
	three := func(version string) []Machine {
		return []Machine{runningServer("a", "ec", version), runningServer("b", "ec", version), runningServer("c", "ec", version)}
	}
	t.Run("before it has begun", func(t *testing.T) {
		r := newRotation(t, three("")...)
		r.decide()
		r.in.Machines[0].Has, r.in.Machines[0].Deleting = false, true
		if got := r.steps(); !slices.Equal(got, []string{"Rotate b", "Restart b,c", "Verify b,c"}) || r.op.Status.Leader != "b" {
			t.Errorf("got %q, leader %q", got, r.op.Status.Leader)
		}
	})
	t.Run("while it writes Secrets", func(t *testing.T) {
		r := newRotation(t, three("")...)
		r.decide()
		r.in.Machines[0].Deleting = true
		r.decide()
		r.expect(operationv1.PhaseFailed, "Keep the machine")
	})
	t.Run("gone", func(t *testing.T) {
		r := newRotation(t, three("")...)
		r.decide()
		r.in.Machines = r.in.Machines[1:]
		r.decide()
		r.expect(operationv1.PhaseFailed, "Keep the machine")
	})
	t.Run("after it has written Secrets", func(t *testing.T) {
		r := newRotation(t, three("")...)
		r.decide()
		r.decide()
		r.in.Machines = r.in.Machines[1:]
		if got := r.steps(); !slices.Equal(got, []string{"Verify b,c"}) {
			t.Errorf("got %q", got)
		}
		r.expect(operationv1.PhaseSucceeded, "")
	})
	t.Run("with three commands", func(t *testing.T) {
		r := newRotation(t, three("v1.30.4+k3s1")...)
		for r.op.Status.Step != operationv1.StepReencrypt {
			r.decide()
		}
		r.in.Machines[0].Deleting = true
		if got := r.steps(); !slices.Equal(got, []string{"Reencrypt b", "PostReencryptRestart b,c", "Verify b,c"}) {
			t.Errorf("got %q", got)
		}
		r.expect(operationv1.PhaseSucceeded, "")
	})
}

func TestEncryptionKeyRotationFails(t *testing.T) {
	r := newRotation(t, runningServer("a", "ec", ""), runningServer("b", "ec", ""), runningServer("c", "ec", ""))
	r.decide()
	r.decide()
	// A server that has restarted is waited for until it is healthy; one that fails ends the operation.
	r.in.Machines[0].ProbesPassed, r.in.Machines[0].Unhealthy = false, []string{"kube-apiserver"}
	if tasks := r.decide(); len(tasks) != 1 || tasks["a"].Name != TaskRestartServer {
		t.Errorf("got %v", tasks)
	}
	r.in.Now = r.in.Now.Add(restartTimeout)
	r.decide()
	r.expect(operationv1.PhaseFailed, "Restarting the servers failed on a; status.machines says why. All Secrets are written")
	if m := r.op.Status.Machines[0]; !strings.Contains(m.Message, "kube-apiserver") {
		t.Errorf("got %+v", m)
	}

	r = newRotation(t, runningServer("a", "ec", ""), runningServer("b", "ec", ""))
	r.decide()
	r.in.Now = r.in.Now.Add(RotateTimeout + time.Second)
	r.in.Machines[0].Progress = rollout.ProgressApplying
	r.decide()
	r.expect(operationv1.PhaseFailed, "Keep the machine and its server/cred directory")
}
