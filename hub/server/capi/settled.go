package capi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/drover-dev/drover/hub/util/patch"
)

// settleTime is how long a cluster was connected before health checks look at it. Kubelets report within a minute, and machines that could
// not register while the hub was down try again as often.
const settleTime = 2 * time.Minute

// settledClusters is the ClusterCache of the controller of MachineHealthChecks, for which a cluster that has just been reached is not
// connected yet. That a Node was lost long ago may mean that the API was down since, and its kubelet has not reported again yet; and the
// Node of a machine that was starting when the hub went down may exist by now, and the Machine not refer to it yet. Health checks would
// have all such machines replaced at once.
//
// Nor does a machine that was found unhealthy before wait for its replacement meanwhile: its MachineSet would delete it when its turn
// comes, whether it has recovered or not, since only a health check takes that back.
type settledClusters struct {
	clustercache.ClusterCache
	// hub is the client of the hub's API, which reads Machines from the cache.
	hub client.Client
	now func() time.Time

	mu sync.Mutex
	// since is when each cluster was first seen connected. Cluster API asks for the client of a cluster whenever its connection changes.
	since map[client.ObjectKey]time.Time
	// settled is called when a cluster was connected for settleTime.
	settled func(client.ObjectKey)
	// begun is when the first health check looked at its machines.
	begun time.Time
}

func newSettledClusters(cache clustercache.ClusterCache, hub client.Client) *settledClusters {
	return &settledClusters{
		ClusterCache: cache, hub: hub, now: time.Now, since: map[client.ObjectKey]time.Time{}, settled: func(client.ObjectKey) {},
	}
}

// GetClusterSource implements clustercache.ClusterCache.
func (c *settledClusters) GetClusterSource(
	controller string, checks func(ctx context.Context, cluster client.Object) []ctrl.Request, opts ...clustercache.GetClusterSourceOption,
) source.Source {
	return settledSource{c.ClusterCache.GetClusterSource(controller, checks, opts...), c, checks}
}

// settledSource also has the health checks of a cluster reconciled when it has settled. Each reconcile until then fails, and the next one
// follows up to 1,000 s later, since those while the cluster was not connected have failed, too.
type settledSource struct {
	source.Source
	clusters *settledClusters
	checks   func(ctx context.Context, cluster client.Object) []ctrl.Request
}

// Start implements source.Source.
func (s settledSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	s.clusters.mu.Lock()
	s.clusters.settled = func(cluster client.ObjectKey) {
		object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}}
		for _, check := range s.checks(ctx, object) {
			queue.Add(check)
		}
	}
	s.clusters.mu.Unlock()
	return s.Source.Start(ctx, queue)
}

// forget is called when a Cluster is deleted: another one of its name is another cluster.
func (c *settledClusters) forget(cluster client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.since, cluster)
}

// GetClient implements clustercache.ClusterCache.
func (c *settledClusters) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	remote, err := c.ClusterCache.GetClient(ctx, cluster)
	if err = c.settle(cluster, err); err != nil {
		return nil, errors.Join(err, c.unmark(ctx, cluster))
	}
	return remote, nil
}

// settle returns why health checks do not look at a cluster: that it is not connected, or not for long.
func (c *settledClusters) settle(cluster client.ObjectKey, notConnected error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if notConnected != nil {
		delete(c.since, cluster)
		return notConnected
	}
	since, known := c.since[cluster]
	if !known {
		since = c.now()
		c.since[cluster] = since
		settled := c.settled
		time.AfterFunc(settleTime, func() { settled(cluster) })
	}
	if left := since.Add(settleTime).Sub(c.now()); left > 0 {
		return fmt.Errorf("waiting %s after the cluster was reached: %w", left.Round(time.Second), clustercache.ErrClusterNotConnected)
	}
	return nil
}

// followedSince is from when on the hub has followed a cluster without a break. Of one that was not started, to which there is no
// connection yet, that is since health checks have begun with this hub.
func (c *settledClusters) followedSince(cluster client.ObjectKey) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.IsZero() {
		c.begun = c.now()
	}
	if since, connected := c.since[cluster]; connected {
		return since
	}
	return c.begun
}

// unmark has no machine of a cluster wait for its replacement. That of others than MachineSets never comes.
func (c *settledClusters) unmark(ctx context.Context, cluster client.ObjectKey) error {
	var list clusterv1.MachineList
	err := c.hub.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the Machines of the cluster: %w", err)
	}
	var errs []error
	for i := range list.Items {
		machine := &list.Items[i]
		if !machine.DeletionTimestamp.IsZero() || metav1.GetControllerOfNoCopy(machine) == nil ||
			!conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedCondition) {
			continue
		}
		errs = append(errs, patch.RemoveCondition(ctx, c.hub, machine, fieldOwner, clusterv1.MachineOwnerRemediatedCondition))
	}
	return errors.Join(errs...)
}

// startingMachines is the client of the controller of MachineHealthChecks. For it, a machine without a Node was created when the hub began
// to follow the cluster, if it is older: while the hub is down, or the cluster's API, no machine can join, and that must not count against
// nodeStartupTimeout.
type startingMachines struct {
	client.Client
	clusters *settledClusters
}

// List implements client.Reader. The Machines are copies, whose time of creation the controller only reads.
func (c startingMachines) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	machines, ok := list.(*clusterv1.MachineList)
	if !ok {
		return nil
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		if machine.Status.NodeRef.IsDefined() {
			continue
		}
		since := c.clusters.followedSince(client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName})
		if since.After(machine.CreationTimestamp.Time) {
			machine.CreationTimestamp = metav1.NewTime(since)
		}
	}
	return nil
}
