// Package fairqueue leaves workers of a controller for other namespaces where the objects of one take long. A team may own clusters whose
// API servers answer each request just before it times out, or thousands of Machines of one such cluster: an object of another team
// would wait until a worker has come to it after all of theirs.
//
// It must not know what takes long.
package fairqueue

import (
	"slices"
	"sort"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// timesFree is how many times as many workers as are free a namespace may have: two thirds of all where no other one has any.
const timesFree = 2

// waiting counts the objects that wait for a worker, by controller.
var waiting = promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{
	Name: "drover_reconciles_waiting",
	Help: "Objects that wait since their namespace has its share of the workers, by controller.",
}, []string{"controller"})

// Options are those of a controller with so many workers.
func Options(workers int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: workers, NewQueue: func(
		name string, limiter workqueue.TypedRateLimiter[ctrl.Request],
	) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		return New(name, limiter, workers)
	}}
}

// New returns the queue of a controller with so many workers.
func New(name string, limiter workqueue.TypedRateLimiter[ctrl.Request], workers int) priorityqueue.PriorityQueue[ctrl.Request] {
	return &queue{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[ctrl.Request]) { o.RateLimiter = limiter }),
		waiting:       waiting.WithLabelValues(name),
		free:          max(1, workers),
		namespaces:    map[string]*namespace{},
		chosen:        sets.Set[ctrl.Request]{},
	}
}

// queue gives a worker no object whose namespace has its share of them. Such an object leaves the queue below, which would go on with the
// same one, and waits until others are done.
type queue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	waiting prometheus.Gauge

	mu sync.Mutex
	// free is how many workers have no object.
	free int
	// namespaces are those with objects that have a worker, or wait.
	namespaces map[string]*namespace
	// chosen are objects that have waited, and have a worker: they are in the queue below until it takes them.
	chosen sets.Set[ctrl.Request]
}

type namespace struct {
	// workers is how many it has.
	workers int
	// waiting are the objects that wait for one, the most urgent first. priorities has them and no others.
	waiting    []ctrl.Request
	priorities map[ctrl.Request]int
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (ctrl.Request, int, bool) {
	for {
		request, priority, shutdown := q.PriorityQueue.GetWithPriority()
		if shutdown || q.begin(request, priority) {
			return request, priority, shutdown
		}
		q.PriorityQueue.Done(request)
	}
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (ctrl.Request, bool) {
	request, _, shutdown := q.GetWithPriority()
	return request, shutdown
}

// begin gives an object a worker, or has it wait and returns false.
func (q *queue) begin(request ctrl.Request, priority int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.chosen.Has(request) {
		q.chosen.Delete(request)
		return true
	}
	n := q.namespaces[request.Namespace]
	if n == nil {
		n = &namespace{priorities: map[ctrl.Request]int{}}
		q.namespaces[request.Namespace] = n
	}
	begins := q.mayBegin(n)
	if before, waits := n.priorities[request]; waits { // there was another event
		if !begins && before >= priority {
			return false
		}
		n.remove(slices.Index(n.waiting, request))
		q.waiting.Dec()
	}
	if begins {
		n.workers++
		q.free--
		return true
	}
	n.add(request, priority)
	q.waiting.Inc()
	return false
}

func (q *queue) mayBegin(n *namespace) bool { return n.workers < timesFree*q.free }

// Done implements workqueue.TypedInterface.
func (q *queue) Done(request ctrl.Request) {
	q.PriorityQueue.Done(request)
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.namespaces[request.Namespace]
	n.workers--
	q.free++
	for next := q.next(); next != nil; next = q.next() {
		q.choose(next)
	}
	if n.workers == 0 && len(n.waiting) == 0 {
		delete(q.namespaces, request.Namespace)
	}
}

// next is the namespace with the fewest workers of those that wait for another one and may have it, and of several the one with the most
// urgent object: after a start of the hub all that exists waits, and is less urgent than what happens. nil for none.
func (q *queue) next() (next *namespace) {
	urgent := 0
	for _, n := range q.namespaces {
		if len(n.waiting) == 0 || !q.mayBegin(n) {
			continue
		}
		priority := n.priorities[n.waiting[0]]
		if next == nil || n.workers < next.workers || n.workers == next.workers && priority > urgent {
			next, urgent = n, priority
		}
	}
	return next
}

// choose gives the first object that waits a worker.
func (q *queue) choose(n *namespace) {
	request := n.waiting[0]
	q.chosen.Insert(request)
	q.PriorityQueue.AddWithOpts(priorityqueue.AddOpts{Priority: new(n.priorities[request])}, request)
	n.remove(0)
	q.waiting.Dec()
	n.workers++
	q.free--
}

// add adds an object behind those that are as urgent.
func (n *namespace) add(request ctrl.Request, priority int) {
	i := sort.Search(len(n.waiting), func(i int) bool { return n.priorities[n.waiting[i]] < priority })
	n.waiting = slices.Insert(n.waiting, i, request)
	n.priorities[request] = priority
}

func (n *namespace) remove(i int) {
	delete(n.priorities, n.waiting[i])
	if i == 0 { // without moving all others
		n.waiting[0], n.waiting = ctrl.Request{}, n.waiting[1:]
		return
	}
	n.waiting = slices.Delete(n.waiting, i, i+1)
}
