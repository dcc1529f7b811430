package rkecontrolplane

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestForEach: all machines are visited, some at the same time, whichever fail.
func TestForEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machines := make([]*machine, 100)
		for i := range machines {
			machines[i] = &machine{}
		}
		var visited, now, most atomic.Int64
		began := time.Now()
		err := forEach(machines, func(m *machine) error {
			n := visited.Add(1)
			if at := now.Add(1); at > most.Load() {
				most.Store(at)
			}
			time.Sleep(100 * time.Millisecond)
			now.Add(-1)
			switch {
			case m == machines[3]:
				return errors.New("the fourth")
			case m == machines[99]:
				return errors.New("the last")
			case n > 100:
				t.Error("a machine is visited twice")
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "the fourth") || !strings.Contains(err.Error(), "the last") {
			t.Errorf("the errors are lost: %v", err)
		}
		if visited.Load() != 100 || most.Load() > writers || time.Since(began) > time.Second {
			t.Errorf("%d machines are visited within %s, %d at the same time", visited.Load(), time.Since(began), most.Load())
		}
	})
}

// TestConditionsHoldUpNoRollout: a reconcile that has written conditions for some time leaves those of the other machines to the next one,
// which comes at once. Without a client, a write would panic.
func TestConditionsHoldUpNoRollout(t *testing.T) {
	now := time.Unix(0, 0)
	var mu sync.Mutex
	r := &Reconciler{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(updatesFor)
		return now
	}}
	s := &scope{controlPlane: &rkev1.RKEControlPlane{}}
	for range 3 {
		s.machines = append(s.machines, &machine{machine: &clusterv1.Machine{}})
	}
	if err := r.updateMachines(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if s.requeueAfter != atOnce {
		t.Errorf("the next reconcile comes after %s, want %s", s.requeueAfter, atOnce)
	}
}
