package controlplane

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/ownership"
)

// arrivals remember since when agents are connected, as this process has seen it. The condition Connected says less: it stays true while a
// hub that was started waits for its agents, and an attempt to connect in that time says nothing about the time after.
type arrivals struct {
	connected func(management string) bool
	reader    client.Reader
	now       func() time.Time

	mu    sync.Mutex
	since map[string]time.Time
	queue workqueue.TypedRateLimitingInterface[ctrl.Request]
}

// start is a source: it has clusters worked on whose agent comes or goes.
func (a *arrivals) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = queue
	return nil
}

// changed is told of the first session of a key, and of the end of the last one.
func (a *arrivals) changed(key string) {
	connected := a.connected(key)
	a.mu.Lock()
	if connected {
		a.since[key] = a.now()
	} else {
		delete(a.since, key)
	}
	queue := a.queue
	a.mu.Unlock()
	if queue == nil {
		return
	}
	if request, found := a.controlPlane(key); found {
		queue.Add(request)
	}
}

// of is since when the agent of a cluster is connected; zero where it is not, or was already when this process began to look.
func (a *arrivals) of(management string) time.Time {
	if a == nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[management]
}

// controlPlane finds the RKEControlPlane of a management Cluster, in the cache. Sessions of nodes have keys that no Cluster has.
func (a *arrivals) controlPlane(management string) (ctrl.Request, bool) {
	ctx := context.Background()
	object := &managementv3.Cluster{}
	if err := a.reader.Get(ctx, client.ObjectKey{Name: management}, object); err != nil {
		return ctrl.Request{}, false
	}
	cluster := &clusterv1.Cluster{}
	if err := a.reader.Get(ctx, ownership.Key(object), cluster); err != nil {
		return ctrl.Request{}, false
	}
	requests := clusterToControlPlane(ctx, cluster)
	if len(requests) == 0 {
		return ctrl.Request{}, false
	}
	return requests[0], true
}
