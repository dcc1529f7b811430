package operation

import (
	"fmt"
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

func rotate(services ...operationv1.CertificateService) *operationv1.CertificateRotation {
	return &operationv1.CertificateRotation{ObjectMeta: metav1.ObjectMeta{Name: "op", CreationTimestamp: metav1.NewTime(begin)},
		Spec: operationv1.CertificateRotationSpec{Services: services}}
}

// roles are machines that have applied their plan and are healthy, named for their roles.
func roles(names ...string) (out []Machine) {
	for _, name := range names {
		out = append(out, Machine{Machine: rollout.Machine{Name: name, Etcd: strings.Contains(name, "e"),
			ControlPlane: strings.Contains(name, "c"),
			Worker:       strings.Contains(name, "w"), HasPlanSecret: true, Progress: rollout.ProgressApplied, ProbesPassed: true}})
	}
	return out
}

func TestRotatedServices(t *testing.T) {
	for name, tc := range map[string]struct {
		services []operationv1.CertificateService
		runtime  string
		want     map[string]string
	}{
		"all": {runtime: "k3s", want: map[string]string{
			"w": "k3s-controller kube-proxy kubelet",
			"e": "etcd k3s-controller k3s-server kube-proxy kubelet supervisor",
			"c": "admin api-server auth-proxy cloud-controller controller-manager etcd k3s-controller k3s-server kube-proxy kubelet " +
				"scheduler supervisor",
		}},
		"some": {services: []operationv1.CertificateService{"scheduler", "kubelet"}, runtime: "rke2",
			want: map[string]string{"w": "kubelet", "e": "kubelet", "c": "kubelet scheduler"}},
		"server": {services: []operationv1.CertificateService{"rke2-server"}, runtime: "rke2",
			want: map[string]string{"w": "", "e": "rke2-server", "c": "rke2-server"}},
	} {
		for role, want := range tc.want {
			var got []string
			for _, s := range RotatedServices(rotate(tc.services...), tc.runtime, role == "e", role == "c", role == "w") {
				got = append(got, string(s))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s, %s: got %v", name, role, got)
			}
		}
	}
}

// Every service of the definition is known, and none else.
func TestCertificateServices(t *testing.T) {
	want := strings.Split("admin;api-server;auth-proxy;cloud-controller;controller-manager;etcd;k3s-controller;k3s-server;kube-proxy;kubelet;"+
		"rke2-controller;rke2-server;scheduler;supervisor", ";")
	var got []string
	for _, s := range slices.Sorted(maps.Keys(certificateServices)) {
		got = append(got, string(s))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestCertificateRotation(t *testing.T) {
	op := rotate()
	in := Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", "ec2", "w1", "w2")}
	// A worker that is down holds nothing up, a server does.
	in.Machines[3].Progress = rollout.ProgressPending
	in.Machines[1].Progress = rollout.ProgressApplying
	if Decide(op, in); op.Status.Phase != operationv1.PhasePending {
		t.Fatalf("got %+v", op.Status)
	}
	in.Machines[1].Progress = rollout.ProgressApplied
	d := Decide(op, in)
	if op.Status.Step != operationv1.StepRotate || len(d.Tasks) != 4 ||
		d.Tasks["ec1"] != (Task{Step: operationv1.StepRotate, Name: TaskRotateCertificates}) {
		t.Fatalf("got %+v, %+v", d, op.Status)
	}
	// One that has restarted and is not healthy yet is not done.
	in.Machines[0].Has, in.Machines[0].ProbesPassed, in.Machines[0].Unhealthy = true, false, []string{"kube-scheduler"}
	in.Now = in.Now.Add(20 * time.Minute)
	if d = Decide(op, in); len(d.Tasks) != 4 {
		t.Fatalf("got %+v, %+v", d, op.Status)
	}
	in.Machines[0].ProbesPassed = true
	if d = Decide(op, in); len(d.Tasks) != 3 || d.Again != rotationTimeout {
		t.Fatalf("got %+v, %+v", d, op.Status)
	}
	// A failure stops the others.
	in.Machines[1].Has, in.Machines[1].Progress, in.Machines[1].Failure = true, rollout.ProgressFailed, "These certificates are still the same"
	if d = Decide(op, in); len(d.Tasks) != 0 || op.Status.Phase != operationv1.PhaseFailed {
		t.Fatalf("got %+v, %+v", d, op.Status)
	}
	if m := op.Status.Machines[1]; !strings.Contains(m.Message, "still the same") ||
		op.Status.Machines[0].Phase != operationv1.PhaseSucceeded {
		t.Errorf("got %+v", op.Status.Machines)
	}
}

// TestCertificateRotationWithoutNewServers: a server that never joined keeps no other from new certificates, and takes no part. One that is
// to join etcd with the plan that it has, and one that was in the cluster before, are waited for.
func TestCertificateRotationWithoutNewServers(t *testing.T) {
	for name, c := range map[string]struct {
		roles  string
		change func(*Machine)
		waits  bool
	}{
		"no plan":                   {"ec2", func(m *Machine) { m.Progress, m.HasPlanSecret = rollout.ProgressNone, false }, false},
		"no agent":                  {"ec2", func(*Machine) {}, true},
		"agent is gone":             {"ec2", func(m *Machine) { m.CheckedIn, m.LastSeen = true, begin.Add(-time.Hour) }, true},
		"plan has failed":           {"ec2", func(m *Machine) { m.Progress, m.CheckedIn = rollout.ProgressFailed, true }, false},
		"joining etcd":              {"ec2", func(m *Machine) { m.Progress, m.CheckedIn = rollout.ProgressApplying, true }, true},
		"joining the control plane": {"c2", func(m *Machine) { m.Progress, m.CheckedIn = rollout.ProgressApplying, true }, false},
		"had a Node":                {"ec2", func(m *Machine) { m.Version = "v1.34.1+k3s1" }, true},
		"changing":                  {"ec2", func(m *Machine) { m.Underway = rollout.ChangeRestart }, true},
	} {
		t.Run(name, func(t *testing.T) {
			op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", c.roles)}
			m := &in.Machines[1]
			m.Progress, m.Underway, m.ProbesPassed, m.Node = rollout.ProgressPending, rollout.ChangeFirst, false, rollout.NodeAbsent
			c.change(m)
			d := Decide(op, in)
			if waits := op.Status.Phase == operationv1.PhasePending; waits != c.waits {
				t.Fatalf("got %+v", op.Status)
			}
			if _, first := d.Tasks["ec1"]; !c.waits && (!first || len(d.Tasks) != 1) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// TestCertificateRotationWithoutDeleted: a Machine that is deleted in the meantime needs no new certificates, and ends nothing for others.
func TestCertificateRotationWithoutDeleted(t *testing.T) {
	for name, remove := range map[string]func(*Inputs){
		"being deleted": func(in *Inputs) { in.Machines[2].Deleting = true },
		"gone":          func(in *Inputs) { in.Machines = in.Machines[:2] },
	} {
		t.Run(name, func(t *testing.T) {
			op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", "w1", "w2")}
			Decide(op, in)
			remove(&in)
			if d := Decide(op, in); len(d.Tasks) != 2 || op.Status.Phase != operationv1.PhaseInProgress {
				t.Fatalf("got %+v, %+v", d, op.Status)
			}
			in.Machines[0].Has, in.Machines[1].Has = true, true
			Decide(op, in)
			c := conditions.Get(op, operationv1.SucceededCondition)
			if op.Status.Phase != operationv1.PhaseSucceeded || c.Message != "The certificates were replaced on ec1, w1" {
				t.Errorf("got %+v", op.Status)
			}
		})
	}
}

func TestCertificateRotationOfServices(t *testing.T) {
	in := Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: append(roles("e1", "c1", "w1"),
		Machine{Machine: rollout.Machine{Name: "new-w", Worker: true, HasPlanSecret: true}})}
	for services, want := range map[operationv1.CertificateService][]string{
		"scheduler": {"c1"}, "etcd": {"c1", "e1"}, "kubelet": {"c1", "e1", "w1"},
	} {
		op := rotate(services)
		if got := slices.Sorted(maps.Keys(Decide(op, in).Tasks)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %+v", services, got, op.Status)
		}
	}
	op := rotate("kubelet", "rke2-server")
	Decide(op, in)
	if c := conditions.Get(op, operationv1.SucceededCondition); op.Status.Phase != operationv1.PhaseFailed ||
		c.Reason != ReasonServiceNotFound ||
		c.Message != "k3s has no service rke2-server" {
		t.Errorf("got %+v", op.Status)
	}
}

// TestManyMachines: an operation on all machines of a large cluster is decided in a time that grows with their number, not with its square.
func TestManyMachines(t *testing.T) {
	const workers = 10_000
	op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec")}
	for i := range workers {
		in.Machines = append(in.Machines, roles(fmt.Sprintf("w%05d", i))...)
	}
	start := time.Now()
	decision := Decide(op, in)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("%d machines took %s", workers, took)
	}
	if len(decision.Tasks) != workers+1 || len(op.Status.Machines) != workers+1 {
		t.Errorf("%d tasks of %d machines", len(decision.Tasks), len(op.Status.Machines))
	}
}

// TestRenewalOfWhatEndsSoon: a CertificateRotation that the hub has created restarts no machine whose certificates end much later, as one
// does that got them by an earlier attempt.
func TestRenewalOfWhatEndsSoon(t *testing.T) {
	end := begin.AddDate(0, 0, 60)
	for name, c := range map[string]struct {
		user, unmanaged bool
		ends            []time.Time // of ec1, ec2, w1 and w2
		want            []string
	}{
		"all":               {ends: []time.Time{end, end, end, end}, want: []string{"ec1", "ec2", "w1", "w2"}},
		"servers are fresh": {ends: []time.Time{begin.AddDate(1, 0, 0), begin.AddDate(1, 0, 0), end, end}, want: []string{"w1", "w2"}},
		"not known":         {ends: []time.Time{{}, begin.AddDate(1, 0, 0), end, {}}, want: []string{"ec1", "w1", "w2"}},
		"a bit later":       {ends: []time.Time{end, end.AddDate(0, 0, 180), end.AddDate(0, 0, 181), end}, want: []string{"ec1", "ec2", "w2"}},
		"of a user": {user: true, ends: []time.Time{begin.AddDate(1, 0, 0), begin.AddDate(1, 0, 0), end, end},
			want: []string{"ec1", "ec2", "w1", "w2"}},
		"of the API server only": {unmanaged: true, ends: []time.Time{begin.AddDate(1, 0, 0), end, {}, {}},
			want: []string{"ec1", "ec2", "w1", "w2"}},
		"all are fresh": {ends: slices.Repeat([]time.Time{begin.AddDate(1, 0, 0)}, 4)},
	} {
		t.Run(name, func(t *testing.T) {
			op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", UnmanagedConfig: c.unmanaged,
				Machines: roles("ec1", "ec2", "w1", "w2")}
			if !c.user {
				op.Annotations = map[string]string{operationv1.CertificatesExpiryAnnotation: end.Format(time.RFC3339)}
			}
			for i, at := range c.ends {
				in.Machines[i].CertificatesEnd = at
			}
			d := Decide(op, in)
			if got := slices.Sorted(maps.Keys(d.Tasks)); !slices.Equal(got, c.want) {
				t.Errorf("got %v, %+v", got, op.Status)
			}
			if len(c.want) == 0 && op.Status.Phase != operationv1.PhaseSucceeded {
				t.Errorf("got %+v", op.Status)
			}
		})
	}
	// A server that needs none is not waited for.
	op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", "w1")}
	op.Annotations = map[string]string{operationv1.CertificatesExpiryAnnotation: end.Format(time.RFC3339)}
	in.Machines[0].Progress, in.Machines[0].CertificatesEnd = rollout.ProgressApplying, begin.AddDate(1, 0, 0)
	if d := Decide(op, in); len(d.Tasks) != 1 {
		t.Errorf("got %+v, %+v", d, op.Status)
	}
}

// TestCertificateRotationWithoutLostWorkers: a worker that is lost, and has not begun, does not keep others from new certificates.
func TestCertificateRotationWithoutLostWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		last   string
		change func(*Machine)
		left   bool
	}{
		"lost": {"w2", func(m *Machine) { m.Node = rollout.NodeLost }, true},
		"gone": {"w2", func(m *Machine) { m.Node = rollout.NodeAbsent }, true},
		"lost with its task": {"w2", func(m *Machine) {
			m.Node, m.Has, m.Progress = rollout.NodeLost, true, rollout.ProgressPending
		}, true},
		"lost with an earlier plan": {"w2", func(m *Machine) { m.Node, m.Progress = rollout.NodeLost, rollout.ProgressPending }, true},
		"lost in the middle": {"w2", func(m *Machine) {
			m.Node, m.Has, m.Progress = rollout.NodeLost, true, rollout.ProgressApplying
		}, false},
		"lost after its task": {"w2", func(m *Machine) {
			m.Node, m.Has, m.ProbesPassed, m.Unhealthy = rollout.NodeLost, true, false, []string{"kubelet"}
		}, false},
		"the agent is gone": {"w2", func(m *Machine) { m.Node, m.Has, m.Progress = rollout.NodeReady, true, rollout.ProgressPending }, false},
		"not connected":     {"w2", func(m *Machine) { m.Has, m.Progress = true, rollout.ProgressPending }, false},
		"a server":          {"ec2", func(m *Machine) { m.Node = rollout.NodeLost }, false},
	} {
		t.Run(name, func(t *testing.T) {
			op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", "w1", c.last)}
			Decide(op, in)
			in.Machines[0].Has = true
			c.change(&in.Machines[2])
			if d := Decide(op, in); len(d.Tasks) != 2 || len(d.LeftOut) != 0 || c.left && d.Again != lostTimeout {
				t.Fatalf("got %+v, %+v", d, op.Status)
			}
			in.Now = in.Now.Add(lostTimeout)
			if d := Decide(op, in); d.LeftOut[c.last] != c.left || op.Status.Phase != operationv1.PhaseInProgress ||
				(len(d.Tasks) == 1) != c.left {
				t.Fatalf("got %+v, %+v", d, op.Status)
			}
			// It is left out for good.
			if in.Machines[1].Has = true; c.left {
				in.Machines[2].Node = rollout.NodeReady
			}
			in.Now = in.Now.Add(rotationTimeout)
			Decide(op, in)
			if !c.left {
				if op.Status.Phase != operationv1.PhaseFailed {
					t.Errorf("got %+v", op.Status)
				}
				return
			}
			said := conditions.GetMessage(op, operationv1.SucceededCondition)
			if op.Status.Phase != operationv1.PhaseSucceeded || said != "The certificates were replaced on ec1, w1; left out, since their Nodes "+
				"are lost or gone: w2" || op.Status.Machines[2].Phase != operationv1.PhaseCanceled {
				t.Errorf("%q: %+v", said, op.Status)
			}
		})
	}
}
