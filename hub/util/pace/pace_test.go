package pace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// pacedTest is a queue in a bubble of synctest, and the objects that it finds.
type pacedTest struct {
	*testing.T
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	objects  map[string]Object
	comingUp int
	delayed  prometheus.Counter
}

func (q *pacedTest) request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "fleet", Name: name}}
}

// take waits for an object, which has to be this one, and ends its reconcile.
func (q *pacedTest) take(name string) (waited time.Duration) {
	q.Helper()
	began := time.Now()
	got, shutdown := q.Get()
	if got.Name != name || shutdown {
		q.Fatalf("the queue gave %q, want %q", got.Name, name)
	}
	q.Done(got)
	return time.Since(began)
}

// event is a reconcile after an event.
func (q *pacedTest) event(name string) (waited time.Duration) {
	q.Helper()
	q.Add(q.request(name))
	return q.take(name)
}

func testPaced(t *testing.T, test func(*pacedTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := &pacedTest{T: t, objects: map[string]Object{}}
		look := func(key client.ObjectKey) (Object, bool) {
			o, ok := q.objects[key.Name]
			return o, ok
		}
		q.delayed = prometheus.NewCounter(prometheus.CounterOpts{Name: "delayed"})
		paced := &queue{look: look, comingUp: func() int { return q.comingUp }, eachComingUp: 5 * time.Millisecond, delayed: q.delayed}
		paced.start("test", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request](), 1)
		q.TypedRateLimitingInterface = paced
		defer q.ShutDown()
		test(q)
	})
}

// TestInterval: a reconcile after an event waits the longer, the more machines the object has, or come up.
func TestInterval(t *testing.T) {
	for name, tc := range map[string]struct {
		object   Object
		comingUp int
		want     time.Duration
	}{
		"no machine":              {Object{Steady: true}, 0, 0},
		"as Cluster API has it":   {Object{Machines: 300, Steady: true}, 200, 0},
		"many machines":           {Object{Machines: 4000, Steady: true}, 100, 12 * time.Second},
		"more than can be":        {Object{Machines: 1 << 62, Steady: true}, 0, maxMachines},
		"less than can be":        {Object{Machines: -1 << 62, Steady: true}, -1, 0},
		"many come up":            {Object{Machines: 10, Steady: true}, 600, 3 * time.Second},
		"a thousand times that":   {Object{Machines: 10, Steady: true}, 600_000, maxComingUp},
		"many, and it is changed": {Object{Machines: 4000, Steady: false}, 600, 0},
	} {
		testPaced(t, func(q *pacedTest) {
			q.objects["a"], q.comingUp = tc.object, tc.comingUp
			if waited := q.event("a"); waited != 0 {
				q.Errorf("%s: the first reconcile is after %s", name, waited)
			}
			q.Add(q.request("a"))
			if waited := q.event("a"); waited != tc.want {
				q.Errorf("%s: the second is after %s, want %s", name, waited, tc.want)
			}
			if counted := testutil.ToFloat64(q.delayed); counted != float64(min(1, tc.want)) {
				q.Errorf("%s: %v reconciles are counted that were delayed", name, counted)
			}
			time.Sleep(tc.want)
			if waited := q.event("a"); waited != 0 {
				q.Errorf("%s: one with nothing before is after %s", name, waited)
			}
		})
	}
}

// TestIntervalFollows: an event is held back by what is known when it comes, and one that comes later is not after one that came before.
func TestIntervalFollows(t *testing.T) {
	testPaced(t, func(q *pacedTest) {
		q.objects["a"], q.comingUp = Object{Machines: 10, Steady: true}, 1000
		q.event("a")
		q.Add(q.request("a"))
		time.Sleep(2 * time.Second)
		q.comingUp = 500
		if waited := q.event("a"); waited != 500*time.Millisecond {
			q.Errorf("it waits %s after two seconds, while fewer come up", waited)
		}
		q.Add(q.request("a"))
		q.objects["a"] = Object{Machines: 10, Steady: false}
		if waited := q.event("a"); waited != 0 {
			q.Errorf("it waits %s although it was changed", waited)
		}
		q.objects["a"] = Object{Machines: 10, Steady: true}
		q.Add(q.request("a"))
		q.objects["a"] = Object{Machines: 10, Steady: true, Metadata: 1}
		if waited := q.event("a"); waited != 0 {
			q.Errorf("it waits %s although its metadata was changed", waited)
		}
		if waited := q.event("a"); waited != 2500*time.Millisecond {
			q.Errorf("it waits %s with the same metadata", waited)
		}
	})
}

// TestGone: nothing is kept of an object that is gone.
func TestGone(t *testing.T) {
	testPaced(t, func(q *pacedTest) {
		q.objects["a"] = Object{Machines: 4000, Steady: true}
		q.event("a")
		delete(q.objects, "a")
		if waited := q.event("a"); waited != 0 {
			q.Errorf("it waits %s", waited)
		}
		if kept := len(q.TypedRateLimitingInterface.(*queue).last); kept != 0 {
			q.Errorf("%d objects are kept", kept)
		}
	})
}

// TestEventsOnly: what a controller asks for itself is not held back.
func TestEventsOnly(t *testing.T) {
	testPaced(t, func(q *pacedTest) {
		q.objects["a"] = Object{Machines: 10_000, Steady: true}
		q.event("a")
		q.AddAfter(q.request("a"), time.Second)
		if waited := q.take("a"); waited != time.Second {
			q.Errorf("a reconcile after a second is after %s", waited)
		}
		q.AddRateLimited(q.request("a"))
		if waited := q.take("a"); waited >= time.Second {
			q.Errorf("one that failed is retried after %s", waited)
		}
		paced, ok := q.TypedRateLimitingInterface.(priorityqueue.PriorityQueue[ctrl.Request])
		if !ok {
			q.Fatal("it is no priority queue")
		}
		began := time.Now()
		paced.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(7)}, q.request("a"))
		if _, priority, _ := paced.GetWithPriority(); priority != 7 || time.Since(began) != maxMachines {
			q.Errorf("an event of priority 7 has priority %d after %s", priority, time.Since(began))
		}
	})
}
