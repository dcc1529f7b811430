package operation

import (
	"math/rand/v2"
	"testing"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestRotationBesideLostWorker: with a limit of one worker, one that has lost power keeps no other machine from new certificates.
func TestRotationBesideLostWorker(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.version = 4
	s.addRunning("a:ec", "b:ec", "c:ec", "v:w", "w:w", "x:w")
	lost := s.hosts["w"]
	lost.power, lost.downSince = false, s.step
	for range 4 {
		s.tick()
	}
	o := s.create(&operationv1.CertificateRotation{})
	for range 90 {
		if o.status().Phase.Ended() {
			break
		}
		s.tick()
	}
	if o.status().Phase != operationv1.PhaseSucceeded {
		t.Errorf("got %+v", *o.status())
	}
	for name, h := range s.hosts {
		want := 1
		if h == lost {
			want = 0
		}
		if did := h.did[string(o.api.GetUID())+"/"+operationv1.StepRotate]; did != want {
			t.Errorf("%s has replaced its certificates %d times, want %d", name, did, want)
		}
	}
	s.powerOn(lost)
	if !s.settle(60) || len(s.faults) > 0 {
		t.Errorf("faults: %q", s.faults)
	}
}

// TestLostWorkerWaitsForOthers: a worker whose Node is lost, as one whose kubelet has a certificate that has ended, is not left out while
// it may wait for a server that takes long, or for a worker that has begun. Its time begins when they have ended.
func TestLostWorkerWaitsForOthers(t *testing.T) {
	op, in := rotate(), Inputs{Now: begin, Bootstrapped: true, Runtime: "k3s", Machines: roles("ec1", "w1", "w2")}
	in.Machines[1].Node, in.Machines[2].Node = rollout.NodeLost, rollout.NodeLost
	Decide(op, in)
	after := func(title string, passed time.Duration, tasks int, again time.Duration) {
		t.Helper()
		in.Now = in.Now.Add(passed)
		if d := Decide(op, in); len(d.Tasks) != tasks || len(d.LeftOut) != 0 || d.Again != again {
			t.Errorf("%s: got %+v, %+v", title, d, op.Status)
		}
	}
	server, worker := &in.Machines[0], &in.Machines[1]
	server.Has, server.Progress = true, rollout.ProgressApplying
	after("a server has begun", 2*lostTimeout, 3, rotationTimeout-2*lostTimeout)
	server.Progress = rollout.ProgressApplied
	after("the server has ended", 0, 2, lostTimeout)
	worker.Has, worker.Progress = true, rollout.ProgressApplying
	after("a worker has begun", 2*lostTimeout, 2, rotationTimeout-2*lostTimeout)
	worker.Progress = rollout.ProgressApplied
	after("the worker has ended, at the limit of the step", rotationTimeout-2*lostTimeout, 1, lostTimeout)
	in.Now = in.Now.Add(lostTimeout)
	Decide(op, in)
	if op.Status.Phase != operationv1.PhaseSucceeded || op.Status.Machines[2].Phase != operationv1.PhaseCanceled {
		t.Errorf("in the end: got %+v", op.Status)
	}
}
