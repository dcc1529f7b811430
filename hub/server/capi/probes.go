package capi

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	// probeInterval is upstream's time from one probe of a cluster's API to the next (buildClusterAccessorConfig in controllers/clustercache).
	probeInterval = 10 * time.Second
	// probeEach is for each cluster, so that all of them together are ten probes a second as long as maxProbeInterval allows it.
	probeEach = 100 * time.Millisecond
	// maxProbeInterval leaves time for two more probes, with their timeouts, until a cluster counts as disconnected.
	maxProbeInterval = connectionGracePeriod / 2
)

// probes has clusters probed less often where there are many: those of a thousand, every ten seconds, would take as much of a
// processor as all else that the hub does at rest. A cluster whose last probe failed is probed as upstream does.
type probes struct {
	clusters atomic.Int64
	// state is set before the first probe.
	state func(context.Context, client.ObjectKey) clustercache.HealthCheckingState
}

// newProbes counts the Clusters of a cache.
func newProbes(ctx context.Context, clusters cache.Informers) (*probes, error) {
	informer, err := clusters.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	p := &probes{}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.clusters.Add(1) },
		DeleteFunc: func(any) { p.clusters.Add(-1) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	return p, nil
}

func (p *probes) interval() time.Duration {
	return min(max(time.Duration(p.clusters.Load())*probeEach, probeInterval), maxProbeInterval)
}

// queue puts off the next probe of clusters in the queue of upstream's cache.
func (p *probes) queue(of priorityqueue.PriorityQueue[ctrl.Request]) priorityqueue.PriorityQueue[ctrl.Request] {
	return probeQueue{of, p}
}

type probeQueue struct {
	priorityqueue.PriorityQueue[ctrl.Request]
	probes *probes
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q probeQueue) AddWithOpts(opts priorityqueue.AddOpts, clusters ...ctrl.Request) {
	if opts.After != probeInterval {
		q.PriorityQueue.AddWithOpts(opts, clusters...)
		return
	}
	for _, cluster := range clusters {
		next := opts
		state := q.probes.state(context.Background(), cluster.NamespacedName)
		if !state.LastProbeSuccessTime.IsZero() && state.ConsecutiveFailures == 0 {
			next.After = q.probes.interval()
		}
		q.PriorityQueue.AddWithOpts(next, cluster)
	}
}
