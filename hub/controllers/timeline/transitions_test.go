package timeline

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newMachine(name string, conditions ...metav1.Condition) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-m", CreationTimestamp: metav1.NewTime(noon)},
		Status:     clusterv1.MachineStatus{Conditions: conditions},
	}
}

func condition(conditionType string, status metav1.ConditionStatus, reason string, at time.Time) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: "about " + reason,
		LastTransitionTime: metav1.NewTime(at)}
}

func reasonsOf(transitions []transition) []string {
	var out []string
	for _, t := range transitions {
		out = append(out, t.reason)
	}
	return out
}

func TestTransitions(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	tests := map[string]struct {
		// before is what Events were created of; nil is a hub that has just started.
		before   []metav1.Condition
		now      []metav1.Condition
		observed time.Time
		want     []string
	}{
		"a new machine": {
			before: []metav1.Condition{},
			now:    []metav1.Condition{condition("Reconciled", unknown, "WaitingForAgent", noon), condition("Deleting", no, "NotDeleting", noon)},
			want:   []string{"WaitingForAgent"},
		},
		"nothing has changed": {
			before: []metav1.Condition{condition("Reconciled", unknown, "WaitingForAgent", noon)},
			now:    []metav1.Condition{condition("Reconciled", unknown, "WaitingForAgent", noon)},
		},
		"a message is no transition": {
			before: []metav1.Condition{condition("Reconciled", unknown, "WaitingForProbes", noon)},
			now: []metav1.Condition{{Type: "Reconciled", Status: unknown, Reason: "WaitingForProbes", Message: "others",
				LastTransitionTime: metav1.NewTime(noon)}},
		},
		"a reason is one": {
			before: []metav1.Condition{condition("Reconciled", unknown, "WaitingForAgent", noon)},
			now:    []metav1.Condition{condition("Reconciled", unknown, "ApplyingPlan", noon)},
			want:   []string{"ApplyingPlan"},
		},
		"met has a name of its own": {
			before: []metav1.Condition{condition("Reconciled", unknown, "WaitingForProbes", noon)},
			now:    []metav1.Condition{condition("Reconciled", yes, "UpToDate", noon.Add(time.Minute))},
			want:   []string{"UpToDate"},
		},
		"what repeats others has no Event": {
			before: []metav1.Condition{},
			now:    []metav1.Condition{condition("Ready", yes, "Ready", noon), condition("Available", yes, "Available", noon)},
		},
		"a condition that is not listed has an Event of its reason": {
			before: []metav1.Condition{condition("MemberRemoved", no, "WaitingForQuorum", noon)},
			now:    []metav1.Condition{condition("MemberRemoved", no, "RemovingMember", noon)},
			want:   []string{"RemovingMember"},
		},
		"a node that was ready has an Event when it is not": {
			before: []metav1.Condition{condition("NodeReady", yes, "NodeReady", noon)},
			now:    []metav1.Condition{condition("NodeReady", no, "NodeNotReady", noon.Add(time.Minute))},
			want:   []string{"NodeNotReady"},
		},
		"in the order of time": {
			before: []metav1.Condition{},
			now: []metav1.Condition{
				condition("Reconciled", yes, "UpToDate", noon.Add(2*time.Minute)), condition("NodeReady", yes, "NodeReady", noon.Add(time.Minute)),
			},
			want: []string{"NodeReady", "UpToDate"},
		},
		"what each machine gets has no Event, and has one when it is lost": {
			before: []metav1.Condition{condition("InfrastructureReady", yes, "Ready", noon)},
			now: []metav1.Condition{
				condition("InfrastructureReady", no, "Deleted", noon.Add(time.Minute)), condition("BootstrapConfigReady", yes, "Ready", noon),
			},
			want: []string{"WaitingForInfrastructure"},
		},
		"after a start, what has an Event gets no other": {
			now:      []metav1.Condition{condition("Reconciled", yes, "UpToDate", noon)},
			observed: noon.Add(time.Second),
		},
		"after a start, what came since has an Event": {
			now:      []metav1.Condition{condition("Reconciled", yes, "UpToDate", noon.Add(time.Minute))},
			observed: noon.Add(time.Minute),
			want:     []string{"UpToDate"},
		},
		"after a start, the end of what was in progress has an Event": {
			now:      []metav1.Condition{condition("NodeReady", no, "NodeNotReady", noon.Add(time.Hour))},
			observed: noon.Add(time.Minute),
			want:     []string{"NodeNotReady"},
		},
		"after a start, what a new machine lacks has none": {
			now:      []metav1.Condition{condition("NodeReady", no, "NodeDoesNotExist", noon)},
			observed: noon.Add(-time.Minute),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := &clusterState{recovered: test.before != nil}
			if test.before != nil {
				m.seen = map[conditionKey]conditionState{}
				for _, c := range test.before {
					m.seen[conditionKey{"uid-m", c.Type}] = conditionState{c.Status, c.Reason}
				}
			}
			got := m.transitions([]conditioned{newMachine("m", test.now...)}, test.observed, noon.Add(time.Hour))
			if diff := cmp.Diff(test.want, reasonsOf(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEventIsRetried: a transition whose Event could not be created comes again in the next reconcile, and one that has its Event does not.
func TestEventIsRetried(t *testing.T) {
	m := &clusterState{recovered: true}
	objects := []conditioned{newMachine("m", condition("Reconciled", metav1.ConditionUnknown, "ApplyingPlan", noon))}
	first := m.transitions(objects, noon, noon)
	if got := m.transitions(objects, noon, noon); len(first) != 1 || len(got) != 1 {
		t.Fatalf("got %v and then %v, want the same twice", reasonsOf(first), reasonsOf(got))
	}
	m.seen[first[0].key] = first[0].state
	if got := m.transitions(objects, noon, noon); len(got) != 0 {
		t.Errorf("got %v again", reasonsOf(got))
	}
}

// TestPropagation: the Cluster gets the Events of a Machine that need somebody, and none of those that each machine has.
func TestPropagation(t *testing.T) {
	s := &scope{}
	for name, want := range map[string]bool{
		"Reconciled True UpToDate": false, "Reconciled Unknown Delivering": false, "Reconciled False PlanFailed": true,
		"NodeReady True NodeReady": false, "NodeReady Unknown NodeReadyUnknown": true, "NodeReady False NodeNotReady": true,
		"HealthCheckSucceeded False UnhealthyNode": true, "InfrastructureReady True Ready": false,
	} {
		fields := strings.Fields(name)
		machine := newMachine("m")
		c := condition(fields[0], metav1.ConditionStatus(fields[1]), fields[2], noon)
		if got := s.propagates(transition{object: machine, condition: c, rule: ruleFor(machine, c.Type)}); got != want {
			t.Errorf("%s: propagated %t, want %t", name, got, want)
		}
	}
}

func TestNewEvent(t *testing.T) {
	changed := func(c metav1.Condition) transition {
		return transition{
			change: change{conditionKey{"uid-m", c.Type}, conditionState{c.Status, c.Reason}}, condition: c, at: noon,
			reason: c.Reason, rule: ruleFor(newMachine("m"), c.Type), object: newMachine("m"),
		}
	}
	failed := changed(condition("Reconciled", metav1.ConditionFalse, "PlanFailed", noon))
	waits := changed(condition("Reconciled", metav1.ConditionUnknown, "ApplyingPlan", noon))
	for _, test := range []struct {
		t    transition
		want string
	}{
		{failed, "Warning"},
		{waits, "Normal"},
		{changed(condition("Reconciled", metav1.ConditionFalse, "Deleting", noon)), "Normal"},
		{changed(condition("InfrastructureReady", metav1.ConditionFalse, "WaitingForInfrastructure", noon)), "Normal"},
		{changed(condition("EtcdMemberRemoved", metav1.ConditionFalse, "Removing", noon)), "Normal"},
		{changed(condition("EtcdMemberRemoved", metav1.ConditionFalse, "LastMember", noon)), "Warning"},
	} {
		if got := newEvent(test.t, test.t.object, "text", noon); got.Type != test.want {
			t.Errorf("%s: type %s, want %s", test.t.reason, got.Type, test.want)
		}
	}
	a, b := newEvent(failed, failed.object, "a", noon), newEvent(failed, failed.object, "b", noon.Add(time.Hour))
	if a.Name != b.Name {
		t.Errorf("the same transition has the Events %s and %s", a.Name, b.Name)
	}
	if long := newEvent(failed, failed.object, strings.Repeat("ä", 600), noon).Message; len(long) > 1024 || !strings.HasSuffix(long,
		" more bytes)") {
		t.Errorf("an Event says %q", long)
	}
	if c := newEvent(waits, waits.object, "a", noon); c.Name == a.Name {
		t.Errorf("two transitions have the name %s", a.Name)
	}
	if ref := a.InvolvedObject; ref.Kind != "Machine" || ref.APIVersion != clusterv1.GroupVersion.String() || ref.Name != "m" ||
		ref.UID != "uid-m" {
		t.Errorf("refers to %+v", ref)
	}
}
