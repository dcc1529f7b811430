package management

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// deleteForMoveAnnotation is set by "clusterctl move" on what it is about to take away from the hub that it came from.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// IsMovedAway tells whether an object only leaves this hub, so that nothing that belongs to it may be deleted.
func IsMovedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[deleteForMoveAnnotation]
	return moved
}

// Departures are the clusters that were seen to leave for another hub, until what they have left behind is removed. They are not written
// down: a hub that stops in that moment leaves a management Cluster that takes no machines, since there is no cluster behind it.
type Departures struct {
	// Of names the cluster that an object stands for, and is empty for one that stands for none. Unset, it is the object's own name.
	Of func(client.Object) string

	clusters sync.Map // names of clusters by the keys of the objects that stood for them
}

// Note is a predicate that lets everything through and notes which clusters leave.
func (d *Departures) Note() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		name := e.Object.GetName()
		if d.Of != nil {
			name = d.Of(e.Object)
		}
		if IsMovedAway(e.Object) && name != "" {
			d.clusters.Store(client.ObjectKeyFromObject(e.Object), name)
		}
		return true
	}}
}

// RemoveLeftovers removes the management Cluster of an owner that has left for another hub: its registration tokens must not outlive it. A
// deletion removes the management Cluster first, and one that is there before its owner may be part of a backup that is being restored. kind is
// an empty object of the kind that departures were noted of.
func (d *Departures) RemoveLeftovers(ctx context.Context, c client.Client, live client.Reader, key types.NamespacedName, kind client.Object) error {
	name, left := d.clusters.Load(key)
	if !left {
		return nil
	}
	var leftovers managementv3.ClusterList
	if err := c.List(ctx, &leftovers, client.MatchingLabels(Owner{Namespace: key.Namespace, Name: name.(string)}.Labels())); err != nil {
		return fmt.Errorf("listing the management Clusters of a cluster that is gone: %w", err)
	}
	for i := range leftovers.Items {
		// The cluster may be back, and the cache older than that.
		err := live.Get(ctx, key, kind)
		if err == nil {
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading %T %s: %w", kind, key, err)
		}
		leftover := &leftovers.Items[i]
		if err := c.Delete(ctx, leftover, client.Preconditions{UID: &leftover.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the management Cluster %s: %w", leftover.Name, err)
		}
	}
	d.clusters.Delete(key)
	return nil
}
