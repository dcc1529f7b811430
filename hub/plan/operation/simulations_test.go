package operation

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/testenv/simulate"
)

// TestTaskTakenBack: a plan that restarts a machine is taken back while the agent applies it, and no other member of etcd restarts before
// the agent has ended it.
func TestTaskTakenBack(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.version = 4
	s.addRunning("a:ec", "b:ec", "c:ec", "d:ec", "e:ec")
	o, b := s.create(&operationv1.CertificateRotation{}), s.hosts["b"]
	b.hangs = true
	until := func(what string, is func() bool) {
		t.Helper()
		for range 60 {
			if is() {
				return
			}
			s.tick()
		}
		t.Fatalf("%s: %+v, %v", what, *o.status(), s.faults)
	}
	until("b restarts", func() bool { return b.attempt != nil && b.attempt.task == TaskRotateCertificates && b.part == partTask })
	s.setSpec(o, func(spec *operationv1.Spec) { spec.Cancel = true })
	until("the plan is taken back", func() bool { return b.api.delivered.task == "" })
	// One that is not available itself does not count among those that a restart takes down.
	a := s.hosts["a"]
	a.agent = false
	a.update(func(r *record) { r.failing = []string{"kube-scheduler"} })
	s.restarted++
	for range 5 {
		s.tick()
	}
	if a.api.delivered.restarted == s.restarted || len(s.faults) > 0 {
		t.Errorf("a restarts while b does: %v", s.faults)
	}
	a.agent, b.hangs = true, false
	until("all restart", func() bool {
		return !slices.ContainsFunc(s.sortedHosts(), func(h *host) bool { return h.config.restarted != s.restarted || !h.up() })
	})
	if len(s.faults) > 0 {
		t.Error(s.faults)
	}
}

// TestCanceledRestoreLeavesTheTokens: a restore that is canceled before it has stopped a machine leaves the cluster its tokens, although
// the snapshot is from before they were replaced.
func TestCanceledRestoreLeavesTheTokens(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.version = 4
	s.addRunning("a:ecw")
	a, replaced := s.hosts["a"], 2
	s.tokens.server, s.tokens.last = replaced, replaced
	a.data.token, a.token, a.config.token = replaced, replaced, replaced
	p := &plan{configuration: a.config, stamp: stamp{s.version, a.config}}
	a.stamp = p.stamp
	a.update(func(r *record) { r.delivered, r.applied = p, p })
	o := s.create(&operationv1.ETCDSnapshotRestore{})
	s.maxWrites = 1 // the hub ends after each write
	for range 60 {
		if s.tick(); o.status().Step == operationv1.StepShutdown {
			break
		}
	}
	if o.status().Step != operationv1.StepShutdown || a.api.delivered.stopped() {
		t.Fatalf("got %+v", *o.status())
	}
	s.maxWrites = 0
	s.tick()
	s.setSpec(o, func(spec *operationv1.Spec) { spec.Cancel = true })
	s.maxWrites = -1
	for range 10 {
		s.tick()
	}
	if o.status().Phase != operationv1.PhaseCanceled || s.tokens.server != replaced || a.api.delivered.token != replaced || len(s.faults) > 0 {
		t.Errorf("the token is %d, that of the plan %d; %+v %v", s.tokens.server, a.api.delivered.token, *o.status(), s.faults)
	}
}

// TestRandomSimulations checks that in each simulation no rule is broken, every operation ends, and the cluster settles.
func TestRandomSimulations(t *testing.T) {
	var mutex sync.Mutex
	ended := map[string]int{}
	simulate.Run(t, 600, func(seed uint64, logging bool) (faults, log []string) {
		s := newRandomSimulation(seed)
		s.logging = logging
		s.run()
		mutex.Lock()
		defer mutex.Unlock()
		for phase, n := range s.endedOfKind {
			ended[phase] += n
		}
		if i := slices.IndexFunc(s.events, func(e string) bool { return strings.Contains(e, "FAULT") }); i >= 0 {
			return s.faults, s.events[:i+1]
		}
		return s.faults, s.events
	})
	t.Logf("operations have ended: %v", ended)
}
