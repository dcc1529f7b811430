package capi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// settleTime is how long a cluster was connected before health checks look at it: as long as a new machine has for its Node by default.
const settleTime = 10 * time.Minute

// settledClusters is the ClusterCache of the controller of MachineHealthChecks, for which a cluster that has just been reached is not
// connected yet. That a Node was lost long ago may mean that the API was down since, and its kubelet has not reported again yet; and the
// Node of a machine that was starting when the hub went down may exist by now, and the Machine not refer to it yet. Health checks would
// have all such machines replaced at once.
type settledClusters struct {
	clustercache.ClusterCache
	now func() time.Time

	mu sync.Mutex
	// since is when each cluster was first seen connected. Cluster API asks for the client of a cluster whenever its connection changes.
	since map[client.ObjectKey]time.Time
}

func newSettledClusters(cache clustercache.ClusterCache) *settledClusters {
	return &settledClusters{ClusterCache: cache, now: time.Now, since: map[client.ObjectKey]time.Time{}}
}

// GetClient implements clustercache.ClusterCache.
func (c *settledClusters) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	remote, err := c.ClusterCache.GetClient(ctx, cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.since, cluster)
		return nil, err
	}
	since, known := c.since[cluster]
	if !known {
		since = c.now()
		c.since[cluster] = since
	}
	if left := since.Add(settleTime).Sub(c.now()); left > 0 {
		return nil, fmt.Errorf("waiting %s after the cluster was reached: %w", left.Round(time.Second), clustercache.ErrClusterNotConnected)
	}
	return remote, nil
}
