// Package pace has objects with machines reconciled less often while many machines come up. Then each reconcile finds something new, and
// what it writes is outdated a moment later.
package pace

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/drover-dev/drover/hub/util/fairqueue"
)

// The times from the beginning of a reconcile until an event of the object has it reconciled again, whichever is longest. What is not
// longer than minInterval does not hold an event back, which is how often Cluster API's controllers reconcile an object anyway.
const (
	// eachMachine is for each machine of the object: a reconcile of a Cluster of 10,000 Machines takes 1.6 seconds of a processor.
	eachMachine = 3 * time.Millisecond
	// EachComingUp is for each machine of all clusters that comes up.
	EachComingUp = 50 * time.Millisecond
	// EachMachineComingUp is the same for Machines, which wait for several reconciles until they are ready.
	EachMachineComingUp = 5 * time.Millisecond

	minInterval = time.Second
	// maxMachines and maxComingUp are the longest times for the machines of the object, and for those that come up.
	maxMachines, maxComingUp = 30 * time.Second, 20 * time.Second
)

// Object is what pacing has to know of an object.
type Object struct {
	// Machines is how many it has.
	Machines int
	// Steady is set where its controller has reconciled the object as it is specified now, and it is neither paused nor being deleted. Events
	// of others are not held back.
	Steady bool
	// Metadata is a hash of its labels, annotations and owners. Where it has changed since the last reconcile, events are not held back.
	Metadata uint64
}

// Look reads an object from a cache; not ok if it does not exist.
type Look func(client.ObjectKey) (o Object, ok bool)

// queue is that of a controller whose objects are paced. It holds events back; when the controller itself asks for another reconcile, or
// tries one again that failed, that is its own matter.
type queue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	look         Look
	comingUp     func() int
	eachComingUp time.Duration
	delayed      prometheus.Counter

	mu sync.Mutex
	// last is the last reconcile of each object.
	last map[client.ObjectKey]reconciled
}

// reconciled is when a reconcile began, and the object's metadata then. delayed is set once an event has been held back since.
type reconciled struct {
	began    time.Time
	metadata uint64
	delayed  bool
}

// Pace returns the options of a controller that paces its objects, by the machines that they have, and by those that come up.
func (w *Work) Pace(options controller.Options, look Look, eachComingUp time.Duration) controller.Options {
	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		q := &queue{look: look, comingUp: w.ComingUp, eachComingUp: eachComingUp, delayed: w.delayed.WithLabelValues(name)}
		q.start(name, limiter, options.MaxConcurrentReconciles)
		return q
	}
	return options
}

func (q *queue) start(name string, limiter workqueue.TypedRateLimiter[ctrl.Request], workers int) {
	q.last = map[client.ObjectKey]reconciled{}
	q.PriorityQueue = fairqueue.New(name, limiter, workers)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (ctrl.Request, int, bool) {
	request, priority, shutdown := q.PriorityQueue.GetWithPriority()
	if shutdown {
		return request, priority, shutdown
	}
	o, exists := q.look(request.NamespacedName)
	q.mu.Lock()
	defer q.mu.Unlock()
	if exists {
		q.last[request.NamespacedName] = reconciled{began: time.Now(), metadata: o.Metadata}
	} else {
		delete(q.last, request.NamespacedName)
	}
	return request, priority, shutdown
}

// wait is how long an event of an object is held back.
func (q *queue) wait(key client.ObjectKey) time.Duration {
	o, exists := q.look(key)
	if !exists || !o.Steady {
		return 0
	}
	interval := max(times(o.Machines, eachMachine, maxMachines), times(q.comingUp(), q.eachComingUp, maxComingUp))
	if interval <= minInterval {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	last := q.last[key]
	if last.metadata != o.Metadata {
		return 0
	}
	wait := max(0, interval-time.Since(last.began))
	if wait > 0 && !last.delayed {
		q.delayed.Inc()
		last.delayed = true
		q.last[key] = last
	}
	return wait
}

// times is n times each, or most if that is less.
func times(n int, each, most time.Duration) time.Duration {
	return time.Duration(max(0, min(n, int(most/each)))) * each
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *queue) AddWithOpts(opts priorityqueue.AddOpts, requests ...ctrl.Request) {
	if opts.RateLimited || opts.After > 0 {
		q.PriorityQueue.AddWithOpts(opts, requests...)
		return
	}
	for _, request := range requests {
		held := opts
		held.After = q.wait(request.NamespacedName)
		q.PriorityQueue.AddWithOpts(held, request)
	}
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (ctrl.Request, bool) {
	request, _, shutdown := q.GetWithPriority()
	return request, shutdown
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(request ctrl.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }
