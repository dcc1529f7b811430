package fairqueue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// workers work on each object until it is ended.
type workers struct {
	*testing.T
	*queue

	mu sync.Mutex
	// begun are the objects that they work on; total counts them and all before.
	begun map[string]chan struct{}
	total int
}

// testWorkers runs a test with so many workers, in a bubble of synctest.
func testWorkers(t *testing.T, count int, test func(*workers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]()
		q, ok := New(t.Name(), limiter, count).(*queue)
		if !ok {
			t.Fatal("it is another queue")
		}
		w := &workers{T: t, queue: q, begun: map[string]chan struct{}{}}
		for range count {
			go w.work()
		}
		defer func() {
			w.ShutDown()
			w.end(w.busy()...)
		}()
		test(w)
	})
}

func (w *workers) work() {
	for {
		request, shutdown := w.Get()
		if shutdown {
			return
		}
		ended := make(chan struct{})
		w.mu.Lock()
		if w.begun[request.String()] != nil {
			w.Errorf("%s is worked on twice", request)
		}
		w.begun[request.String()] = ended
		w.total++
		w.mu.Unlock()
		<-ended
		w.Done(request)
	}
}

// add adds objects, as namespace/name.
func (w *workers) add(priority int, objects ...string) {
	for _, object := range objects {
		namespace, name, _ := strings.Cut(object, "/")
		key := client.ObjectKey{Namespace: namespace, Name: name}
		w.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, ctrl.Request{NamespacedName: key})
		synctest.Wait()
	}
}

// end ends the work on objects, one after the other.
func (w *workers) end(objects ...string) {
	for _, object := range objects {
		w.mu.Lock()
		ended := w.begun[object]
		delete(w.begun, object)
		w.mu.Unlock()
		close(ended)
		synctest.Wait()
	}
}

func (w *workers) busy() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.begun))
}

func (w *workers) want(what string, objects ...string) {
	w.Helper()
	if diff := cmp.Diff(objects, w.busy()); diff != "" {
		w.Errorf("%s: -want +got:\n%s", what, diff)
	}
}

func (w *workers) wantWaiting(count int) {
	w.Helper()
	if got := testutil.ToFloat64(w.waiting); got != float64(count) {
		w.Errorf("%v objects wait, want %d", got, count)
	}
}

// TestShare: objects of a namespace that take long leave workers for others.
func TestShare(t *testing.T) {
	testWorkers(t, 3, func(w *workers) {
		w.add(0, "slow/1", "slow/2", "slow/3", "slow/4", "other/1")
		w.want("two take long", "other/1", "slow/1", "slow/2")
		w.wantWaiting(2)
		w.add(0, "other/2")
		w.end("other/1")
		w.want("another one is done", "other/2", "slow/1", "slow/2")
		w.end("slow/1")
		w.want("one that took long is done", "other/2", "slow/2", "slow/3")
		w.wantWaiting(1)
		w.end("other/2")
		w.want("no other one is left", "slow/2", "slow/3")
		w.end("slow/2", "slow/3")
		w.want("the last", "slow/4")
		w.end("slow/4")
		w.wantWaiting(0)
		if len(w.namespaces) != 0 {
			w.Errorf("it keeps %v", w.namespaces)
		}
	})
}

// TestOrder: what waits begins with the most urgent, and otherwise in the order in which it came. Another event does not put it back.
func TestOrder(t *testing.T) {
	testWorkers(t, 2, func(w *workers) {
		w.add(0, "a/x", "a/y")
		w.want("both workers have one", "a/x", "a/y")
	})
	testWorkers(t, 3, func(w *workers) {
		w.add(0, "a/x", "a/y")
		w.add(-100, "a/low", "a/raised")
		w.add(0, "a/first", "a/second", "a/first")
		w.add(7, "a/raised")
		w.wantWaiting(4)
		last := "a/x"
		for _, next := range []string{"a/raised", "a/first", "a/second", "a/low"} {
			w.end(last)
			w.want("the next one", slices.Sorted(slices.Values([]string{next, "a/y"}))...)
			last = next
		}
		w.wantWaiting(0)
		w.add(0, "a/y") // while it is worked on
		w.end(last)
		w.want("the same one does not begin twice", "a/y")
		w.end("a/y")
		w.want("it begins after that", "a/y")
	})
}

// TestUrgent: of namespaces with equally few workers, the one with the most urgent object is first, however many there are.
func TestUrgent(t *testing.T) {
	testWorkers(t, 3, func(w *workers) {
		w.add(0, "a/1", "a/2", "b/1")
		w.add(-100, "a/3")
		const others = 50
		for i := range others {
			w.add(-100, fmt.Sprintf("c%02d/x", i))
		}
		w.end("b/1") // a has its share
		w.want("while a/3 waits", "a/1", "a/2", "c00/x")
		w.end("a/1") // a/3 is behind those of all other namespaces, so that these wait, too
		w.want("a/3 begins", "a/2", "a/3", "c00/x")
		w.wantWaiting(others - 1)
		w.add(0, "z/urgent")
		w.end("c00/x")
		begun := slices.DeleteFunc(w.busy(), func(o string) bool { return o[0] == 'a' })
		w.end(begun...)
		w.want("one of the others was done", "a/2", "a/3", "z/urgent")
		for busy := w.busy(); len(busy) > 0; busy = w.busy() {
			w.end(busy[0])
		}
	})
}

// TestAll: whatever comes and ends when, no namespace has more workers than its share, and in the end all objects were worked on.
func TestAll(t *testing.T) {
	testWorkers(t, 9, func(w *workers) {
		const share, objects = 6, 400
		r := rand.New(rand.NewPCG(1, 2))
		for i := range objects {
			w.add(r.IntN(3), fmt.Sprintf("%c/%d", 'a'+r.IntN(3), i))
			busy := w.busy()
			for _, namespace := range []string{"a/", "b/", "c/"} {
				has := len(slices.DeleteFunc(slices.Clone(busy), func(o string) bool { return !strings.HasPrefix(o, namespace) }))
				if has > share {
					w.Fatalf("%s has %d workers", namespace, has)
				}
			}
			if r.IntN(3) == 0 {
				w.end(busy[r.IntN(len(busy))])
			}
		}
		for busy := w.busy(); len(busy) > 0; busy = w.busy() {
			w.end(busy[r.IntN(len(busy))])
		}
		if w.total != objects || len(w.namespaces)+len(w.chosen) != 0 || w.free != 9 {
			w.Errorf("%d of %d objects were worked on, and it keeps %v, %v, %d", w.total, objects, w.namespaces, w.chosen, w.free)
		}
		w.wantWaiting(0)
	})
}

// TestNamespaces: the more namespaces there are, the fewer workers each of them has. What becomes free is for the one with the fewest.
func TestNamespaces(t *testing.T) {
	testWorkers(t, 15, func(w *workers) {
		count := func() map[string]int {
			out := map[string]int{}
			for _, object := range w.busy() {
				out[object[:1]]++
			}
			return out
		}
		for i := range 20 {
			w.add(0, fmt.Sprintf("a/%d", i), fmt.Sprintf("b/%d", i))
		}
		for i := range 5 {
			w.add(0, fmt.Sprintf("c/%d", i))
		}
		if diff := cmp.Diff(map[string]int{"a": 6, "b": 6, "c": 2}, count()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		w.end("a/0")
		if diff := cmp.Diff(map[string]int{"a": 5, "b": 6, "c": 3}, count()); diff != "" {
			t.Errorf("after one of the first: -want +got:\n%s", diff)
		}
	})
}

// TestAlone: a namespace has two thirds of the workers where no other one has any, and one at least.
func TestAlone(t *testing.T) {
	for count, want := range map[int]int{1: 1, 2: 2, 3: 2, 15: 10, 37: 25, 75: 50, 100: 67} {
		testWorkers(t, count, func(w *workers) {
			for i := range count {
				w.add(0, fmt.Sprintf("a/%d", i))
			}
			if got := len(w.busy()); got != want {
				t.Errorf("it has %d of %d workers, want %d", got, count, want)
			}
		})
	}
}

// TestOptions: a controller has the queue, and as many workers as that knows of.
func TestOptions(t *testing.T) {
	options := Options(15)
	made := options.NewQueue(t.Name(), workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer made.ShutDown()
	if q, ok := made.(*queue); !ok || q.free != 15 || options.MaxConcurrentReconciles != 15 {
		t.Errorf("%d workers, and the queue %+v", options.MaxConcurrentReconciles, made)
	}
}
