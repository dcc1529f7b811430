package rkecontrolplane

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// TestBacklog: the machines of all clusters count, each once, for as long as something is to do for them.
func TestBacklog(t *testing.T) {
	var b backlog
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, other := client.ObjectKey{Namespace: "ns", Name: "one"}, client.ObjectKey{Namespace: "ns", Name: "other"}
	for _, step := range []struct {
		name string
		of   client.ObjectKey
		work work
		want work
	}{
		{"the first", one, work{clusters: 1, machines: 10, fresh: 10}, work{clusters: 1, machines: 10, fresh: 10}},
		{"another", other, work{clusters: 1, machines: 5, fresh: 2, delivered: 4}, work{clusters: 2, machines: 15, fresh: 12, delivered: 4}},
		{"the first again", one, work{clusters: 1, machines: 3, delivered: 3}, work{clusters: 2, machines: 8, fresh: 2, delivered: 7}},
		{"the other is done", other, work{}, work{clusters: 1, machines: 3, delivered: 3}},
		{"both are done", one, work{}, work{}},
		{"the other is gone", other, work{}, work{}},
	} {
		if got := b.set(step.of, step.work, now); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
	b.set(one, work{clusters: 1, machines: 3, delivered: 3}, now)
	now = now.Add(countedFor)
	if got, want := b.set(other, work{clusters: 1, machines: 1, fresh: 1}, now), (work{clusters: 1, machines: 1, fresh: 1}); got != want {
		t.Errorf("when nothing was heard of the first for long: %+v, want %+v", got, want)
	}
	b.set(other, work{}, now)
	if len(b.clusters) != 0 {
		t.Errorf("it keeps %v", b.clusters)
	}
}

// TestWorkOn: a machine counts while nothing was said about it, or its agent has a plan that was delivered lately.
func TestWorkOn(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	with := func(known bool, reason string, delivered time.Time) *machine {
		m := &machine{machine: &clusterv1.Machine{}, secret: &corev1.Secret{}, decision: rollout.Decision{Reason: reason}}
		m.secret.Annotations = map[string]string{rkev1.PlanLastUpdatedAnnotation: delivered.Format(time.RFC3339)}
		if known {
			conditions.Set(m.machine, metav1.Condition{Type: rkev1.ReconciledCondition, Status: metav1.ConditionTrue, Reason: "UpToDate"})
		}
		return m
	}
	got := workOn([]*machine{
		with(false, rollout.ReasonWaitingForAgent, now.Add(-time.Second)), with(false, "WaitingForInfrastructure", now),
		with(true, rollout.ReasonApplyingPlan, now.Add(-time.Minute)), with(true, rollout.ReasonApplyingPlan, now.Add(-time.Hour)),
		with(true, "UpToDate", now),
	}, now)
	if want := (work{clusters: 1, machines: 3, fresh: 2, delivered: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestBacklogTimes: the more there is to do, the less is said about what passes soon.
func TestBacklogTimes(t *testing.T) {
	type times struct{ interval, firstWait, progress, rest time.Duration }
	for name, tc := range map[string]struct {
		work     work
		machines int
		want     times
	}{
		"nothing": {work{}, 10, times{time.Second, 3 * time.Second, 3 * time.Second, 5 * time.Millisecond}},
		"a cluster of a thousand": {work{clusters: 1, machines: 1000, fresh: 1000, delivered: 100}, 1000,
			times{time.Second, time.Minute, 43 * time.Second, 500 * time.Millisecond}},
		"twenty clusters of ten": {work{clusters: 20, machines: 200, fresh: 100, delivered: 100}, 10,
			times{12 * time.Second, 43 * time.Second, 43 * time.Second, 100 * time.Millisecond}},
		"a thousand clusters of ten": {work{clusters: 1000, machines: 10000, fresh: 10000, delivered: 10000}, 10,
			times{time.Minute, time.Minute, time.Minute, time.Second}},
		"a cluster of ten thousand, at rest": {work{}, 10000, times{time.Second, 3 * time.Second, 3 * time.Second, 5 * time.Second}},
	} {
		w := tc.work
		got := times{w.progressInterval(), w.firstWaitShownAfter(), w.progressShownAfter(), w.rest(tc.machines)}
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
