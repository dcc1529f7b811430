package server

import (
	"context"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/labelindex"
)

// lifetime is that of what keeps running after the manager that started it has stopped: while a replica drains, the gateway reads from the
// cache, and the API server still calls its webhooks.
type lifetime struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newLifetime() *lifetime {
	ctx, cancel := context.WithCancel(context.Background())
	return &lifetime{ctx: ctx, cancel: cancel}
}

// end returns when everything has stopped.
func (l *lifetime) end() {
	l.cancel()
	l.running.Wait()
}

// run runs start until the lifetime ends. It returns when ctx or the lifetime ends, whichever is first, or when start fails.
func (l *lifetime) run(ctx context.Context, start func(context.Context) error) error {
	ended := make(chan error, 1)
	l.running.Go(func() { ended <- start(l.ctx) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

type persistentCache struct {
	cache.Cache
	lifetime *lifetime
}

// newCache is a constructor for a manager's cache that runs until the lifetime ends.
func (l *lifetime) newCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	c, err := cache.New(config, opts)
	indexed := &labelindex.Cache{Cache: c, Scheme: opts.Scheme, Keys: listedBy}
	return &persistentCache{secretMetadata{typedObjects{indexed}}, l}, err
}

// listedBy are the labels by which controllers, also those of Cluster API, list the objects of a machine, a pool or a cluster; those that
// fewer objects share come first.
var listedBy = []string{
	rkev1.MachineIDLabel, clusterv1.MachineSetNameLabel, clusterv1.MachineDeploymentNameLabel, clusterv1.ClusterNameLabel,
	rkev1.ClusterNameLabel,
}

// Start implements cache.Cache.
func (c *persistentCache) Start(ctx context.Context) error { return c.lifetime.run(ctx, c.Cache.Start) }

// persistentWebhooks are served until the lifetime ends: a Service that publishes the addresses of replicas that are not ready, as it must
// for those that start, leads to those that stop, too.
type persistentWebhooks struct {
	webhook.Server
	lifetime *lifetime
}

// Start implements webhook.Server.
func (w *persistentWebhooks) Start(ctx context.Context) error {
	return w.lifetime.run(ctx, w.Server.Start)
}
