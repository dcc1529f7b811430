package capi

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// stopDelay is longer than a hub takes to stop.
const stopDelay = time.Minute

// GetClusterSource implements clustercache.ClusterCache. Upstream's cache tells each source of a cluster that was connected or lost, one
// after the other, and waits for all of them whatever happens. A source that ends with its controller would have a hub that stops in that
// moment wait for nothing until its grace period is over, so that these end later.
func (c *Connections) GetClusterSource(
	controller string, mapFunc func(ctx context.Context, cluster client.Object) []ctrl.Request, opts ...clustercache.GetClusterSourceOption,
) source.Source {
	return delayedStop{c.ClusterCache.GetClusterSource(controller, mapFunc, opts...)}
}

// delayedStop goes on taking events for a while after its context has ended. They come to nothing, since the controller's queue is closed.
type delayedStop struct{ source.Source }

// Start implements source.Source.
func (d delayedStop) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(stopDelay, cancel) })
	return d.Source.Start(longer, queue)
}
