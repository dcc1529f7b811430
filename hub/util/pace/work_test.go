package pace

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestWork: a Machine counts until it is ready, is deleted, or has taken too long.
func TestWork(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	w := &Work{now: func() time.Time { return now }, created: map[client.ObjectKey]time.Time{}}
	machine := func(name string, change func(*clusterv1.Machine)) *clusterv1.Machine {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, CreationTimestamp: metav1.NewTime(now)}}
		if change != nil {
			change(m)
		}
		return m
	}
	ready := func(m *clusterv1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Status: metav1.ConditionTrue}}
	}
	check := func(what string, want int) {
		t.Helper()
		if got := w.ComingUp(); got != want {
			t.Errorf("%s: %d come up, want %d", what, got, want)
		}
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.set(machine(name, nil))
		w.set(machine(name, nil))
	}
	check("new", 6)
	w.set(machine("a", ready))
	check("one is ready", 5)
	w.set(machine("b", func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: now} }))
	check("one is being deleted", 4)
	w.remove(machine("c", nil))
	w.remove(toolscache.DeletedFinalStateUnknown{Obj: machine("d", nil)})
	check("two are gone", 2)
	w.set(machine("old", func(m *clusterv1.Machine) { m.CreationTimestamp = metav1.NewTime(now.Add(-comesUpWithin)) }))
	check("one that is old is seen", 2)
	w.set(machine("paused", func(m *clusterv1.Machine) {
		m.Status.Conditions = []metav1.Condition{{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue}}
	}))
	check("one that is paused is seen", 2)
	w.set(machine("e", func(m *clusterv1.Machine) { m.CreationTimestamp = metav1.NewTime(now.Add(time.Hour)) })) // another clock
	now = now.Add(comesUpWithin - time.Second)
	w.set(machine("new", nil))
	check("at last", 3)
	now = now.Add(sweepInterval)
	check("too late", 1)
}
