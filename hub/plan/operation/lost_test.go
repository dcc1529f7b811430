package operation

import (
	"math/rand/v2"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
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
