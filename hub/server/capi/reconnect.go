package capi

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-dev/drover/hub/access/egress"
	"github.com/drover-dev/drover/hub/util/fairqueue"
)

// connecting is how many clusters are connected, or probed, at a time. One whose first list hangs takes a minute, one whose discovery
// does half a minute.
const connecting = 100

// Connections are the connections to workload clusters.
type Connections struct {
	clustercache.ClusterCache
	clusters    *egress.Clusters
	reconnector *reconnector
	handlers    eventHandlers
}

// GetRESTConfig implements clustercache.ClusterCache. The configuration of upstream's cache has neither the server nor a credential.
func (c *Connections) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	cached, err := c.ClusterCache.GetRESTConfig(ctx, cluster)
	if err != nil {
		return nil, err
	}
	config := c.clusters.Config(cluster)
	if config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	config.UserAgent, config.Timeout, config.QPS, config.Burst = cached.UserAgent, cached.Timeout, cached.QPS, cached.Burst
	return config, nil
}

// Watch implements clustercache.ClusterCache.
func (c *Connections) Watch(ctx context.Context, cluster client.ObjectKey, watcher clustercache.Watcher) error {
	return c.ClusterCache.Watch(ctx, cluster, c.handlers.watcher(watcher, c.refuse(cluster)))
}

// Reconnect gives up the connection to a cluster, if there is one, and makes a new one at once. Without it a kubeconfig that leads
// elsewhere would be looked at only after half a minute in which the old one does not answer. It does not block.
func (c *Connections) Reconnect(cluster client.ObjectKey) { c.reconnector.request(cluster) }

// reconnector has clusters reconnected. Upstream's cache has no such call; it forgets a cluster, with the time that it would
// have waited, when its filter does not want it.
type reconnector struct {
	probes *probes

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request]
	pending sets.Set[client.ObjectKey]
	// refused has until when clusters are not connected.
	refused map[client.ObjectKey]time.Time
}

// newQueue is upstream's usual queue with fewer probes, of which this keeps hold.
func (r *reconnector) newQueue(
	name string, limiter workqueue.TypedRateLimiter[ctrl.Request],
) workqueue.TypedRateLimitingInterface[ctrl.Request] {
	queue := r.probes.queue(fairqueue.New(name, limiter, connecting))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	return queue
}

func (r *reconnector) request(cluster client.ObjectKey) {
	r.mu.Lock()
	queue := r.queue
	if queue != nil {
		r.pending.Insert(cluster)
	}
	r.mu.Unlock()
	if queue != nil {
		queue.Add(ctrl.Request{NamespacedName: cluster})
	}
}

// refuse gives up the connection to a cluster, and makes no other one before the time of refusal is over.
func (r *reconnector) refuse(cluster client.ObjectKey) {
	now := time.Now()
	r.mu.Lock()
	maps.DeleteFunc(r.refused, func(_ client.ObjectKey, until time.Time) bool { return now.After(until) })
	if r.refused == nil {
		r.refused = map[client.ObjectKey]time.Time{}
	}
	r.refused[cluster] = now.Add(refusal)
	r.mu.Unlock()
	r.request(cluster)
}

// keep is false once after each request, and has the cluster looked at again; it is false for as long as the cluster is refused.
func (r *reconnector) keep(cluster client.ObjectKey) bool {
	r.mu.Lock()
	queue, forget := r.queue, r.pending.Has(cluster)
	r.pending.Delete(cluster)
	refused := time.Until(r.refused[cluster])
	r.mu.Unlock()
	switch {
	case refused > 0:
		queue.AddAfter(ctrl.Request{NamespacedName: cluster}, refused)
		return false
	case forget:
		queue.Add(ctrl.Request{NamespacedName: cluster})
	}
	return !forget
}

func setupClusterCache(ctx context.Context, mgr ctrl.Manager) (*Connections, error) {
	// The manager's own client reads Secrets from the API server; this one reads the kubeconfig Secrets from the cache. What tenants may have
	// written into them is checked before Cluster API sees it.
	secrets, err := client.New(mgr.GetConfig(), client.Options{
		Scheme:     mgr.GetScheme(),
		HTTPClient: mgr.GetHTTPClient(),
		Cache:      &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, fmt.Errorf("making client for kubeconfig Secrets: %w", err)
	}
	// Cluster API would reach the cluster that the hub runs in without this, which has its credential, if it knew that.
	if err := os.Unsetenv("POD_UID"); err != nil {
		return nil, fmt.Errorf("preparing connections to clusters: %w", err)
	}
	clusters := egress.New()
	if err := forgetDeleted(ctx, mgr.GetCache(), clusters.Forget); err != nil {
		return nil, err
	}
	probes, err := newProbes(ctx, mgr.GetCache())
	if err != nil {
		return nil, err
	}
	r := &reconnector{probes: probes, pending: sets.New[client.ObjectKey]()}
	c := &Connections{clusters: clusters, reconnector: r}
	// Per workload cluster, whose API server shares itself between its clients. Upstream's 20 would have the labels of 1,000 Nodes take 50 s.
	const qps, burst = 100, 200
	cache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: clusters.Reader(secrets),
		Cache:        cacheOptions(),
		Client:       setup.ClusterCacheClientOptions(controllerName, qps, burst),

		ClusterFilter: func(cluster *clusterv1.Cluster) bool {
			key := client.ObjectKeyFromObject(cluster)
			if !r.keep(key) || !worthConnecting(cluster) {
				return false
			}
			c.measure(ctx, key)
			return true
		},
	}, controller.Options{MaxConcurrentReconciles: connecting, NewQueue: r.newQueue})
	if err != nil {
		return nil, fmt.Errorf("setting up the cluster cache: %w", err)
	}
	probes.state = cache.GetHealthCheckingState
	c.ClusterCache = cache
	return c, nil
}
