package timeline

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// eventWriter creates the Events of one Machine, as the reconciles of a hub do.
type eventWriter struct {
	t *testing.T
	r *Reconciler
	m *clusterState
	// failing makes requests that create an Event appear to fail: the API server has done what it was asked for.
	failing bool
}

func newEventWriter(t *testing.T) *eventWriter {
	w := &eventWriter{t: t, m: &clusterState{}}
	c := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).Build()
	w.r = &Reconciler{Live: c, Client: interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			err := c.Create(ctx, object, opts...)
			if err == nil && w.failing {
				return apierrors.NewTimeoutError("request timed out", 1)
			}
			return err
		},
	})}
	return w
}

// restart is another hub, which knows what is stored.
func (w *eventWriter) restart() {
	w.m = &clusterState{}
}

// must creates the Events of a Machine with these conditions, with requests that appear to fail unless ok.
func (w *eventWriter) must(ok bool, conditions ...metav1.Condition) {
	w.t.Helper()
	w.failing = !ok
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid-c"}}
	now := noon.Add(time.Hour)
	transitions := w.m.transitions([]conditioned{newMachine("m", conditions...)}, noon.Add(-time.Minute), now)
	if _, err := w.r.createEvents(w.t.Context(), &scope{provisioning: cluster}, w.m, transitions, now); (err == nil) != ok {
		w.t.Fatalf("with requests that succeed: %t, got %v", ok, err)
	}
}

// counts are how often each Event of the Machine is said to have happened.
func (w *eventWriter) counts() map[string]int32 {
	w.t.Helper()
	var events corev1.EventList
	if err := w.r.Live.(client.Client).List(w.t.Context(), &events); err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int32{}
	for _, e := range events.Items {
		counts[e.InvolvedObject.Kind+" "+e.Reason] += e.Count
	}
	return counts
}

// TestEventsAreCountedOnce: an Event counts how often something happened, not how often the hub tried to say so.
func TestEventsAreCountedOnce(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	waits := condition("Reconciled", unknown, "WaitingForAgent", noon)
	applies := condition("Reconciled", unknown, "ApplyingPlan", noon)
	failed := condition("Reconciled", no, "PlanFailed", noon.Add(time.Minute))
	tests := map[string]struct {
		do   func(w *eventWriter)
		want map[string]int32
	}{
		"the status has changed": {
			do: func(w *eventWriter) {
				w.must(true, waits)
				w.must(false, failed)
				w.must(true, failed)
				w.must(true, failed)
			},
			want: map[string]int32{"Machine WaitingForAgent": 1, "Machine PlanFailed": 1, "Cluster PlanFailed": 1},
		},
		"only the reason has changed": {
			do: func(w *eventWriter) {
				w.must(true, waits)
				w.must(false, applies)
				w.must(true, applies)
			},
			want: map[string]int32{"Machine WaitingForAgent": 1, "Machine ApplyingPlan": 1},
		},
		"the reason comes back": {
			do: func(w *eventWriter) {
				for range 3 {
					w.must(true, waits)
					w.must(true, applies)
				}
			},
			want: map[string]int32{"Machine WaitingForAgent": 3, "Machine ApplyingPlan": 3},
		},
		"another hub takes over": {
			do: func(w *eventWriter) {
				w.must(true, waits)
				w.must(true, failed)
				w.restart()
				w.must(true, failed)
			},
			want: map[string]int32{"Machine WaitingForAgent": 1, "Machine PlanFailed": 1, "Cluster PlanFailed": 1},
		},
		"another hub takes over and fails": {
			do: func(w *eventWriter) {
				w.must(true, waits)
				w.restart()
				lost := condition("NodeReady", no, "NodeNotReady", noon.Add(2*time.Minute))
				w.must(false, failed, lost)
				w.must(false, failed, lost)
				w.must(true, failed, lost)
			},
			want: map[string]int32{"Machine WaitingForAgent": 1, "Machine PlanFailed": 1, "Cluster PlanFailed": 1,
				"Machine NodeNotReady": 1, "Cluster NodeNotReady": 1},
		},
		"an earlier process has said so meanwhile": {
			do: func(w *eventWriter) {
				w.must(true, waits)
				other := &eventWriter{t: w.t, r: w.r, m: &clusterState{}}
				other.must(true, condition("NodeReady", yes, "NodeReady", noon.Add(time.Minute)))
				w.must(true, waits, condition("NodeReady", yes, "NodeReady", noon.Add(time.Minute)))
			},
			want: map[string]int32{"Machine WaitingForAgent": 1, "Machine NodeReady": 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newEventWriter(t)
			test.do(w)
			if diff := cmp.Diff(test.want, w.counts()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
