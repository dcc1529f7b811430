// Package move has what controllers do after "clusterctl move" has moved a cluster to another hub.
package move

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// deleteForMoveAnnotation is set by "clusterctl move" on objects that it deletes from the hub that they were moved from.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// IsMovedAway returns whether an object is deleted because it was moved to another hub: nothing that belongs to it may be deleted.
func IsMovedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[deleteForMoveAnnotation]
	return moved
}

// Cleanup deletes the management Clusters of clusters that were moved to another hub: registration tokens must not outlive the cluster
// here. Moves are kept in memory. A hub that stops in that moment leaves a management Cluster that registers no machines, since no cluster
// belongs to it.
type Cleanup struct {
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// ClusterName returns the name of the cluster that an object stands for, empty for none; where nil it is the name of the object.
	ClusterName func(client.Object) string

	moved sync.Map // from the key of the object to the name of the cluster
}

// Predicate lets every event through and records which clusters were moved.
func (m *Cleanup) Predicate() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		name := e.Object.GetName()
		if m.ClusterName != nil {
			name = m.ClusterName(e.Object)
		}
		if IsMovedAway(e.Object) && name != "" {
			m.moved.Store(client.ObjectKeyFromObject(e.Object), name)
		}
		return true
	}}
}

// Run deletes the management Cluster of a moved cluster; it does nothing for one that was not moved. A deletion has deleted the management
// Cluster before, and one that exists before its owner may be part of a backup that is being restored. key is that of the object that is
// gone, kind an empty object of its kind.
func (m *Cleanup) Run(ctx context.Context, key types.NamespacedName, kind client.Object) error {
	name, moved := m.moved.Load(key)
	if !moved {
		return nil
	}
	var leftovers managementv3.ClusterList
	if err := m.Client.List(ctx, &leftovers, client.MatchingLabels(ownership.Labels(client.ObjectKey{
		Namespace: key.Namespace, Name: name.(string),
	}))); err != nil {
		return fmt.Errorf("listing the management Clusters of a moved cluster: %w", err)
	}
	for i := range leftovers.Items {
		// The cluster may have been moved back, which the cache has not seen yet.
		if found, err := objects.Get(ctx, m.Live, key, kind); found || err != nil {
			return err
		}
		leftover := &leftovers.Items[i]
		// Whoever may write an object can have it stand for any cluster of the namespace. One that is still here was not moved.
		owned, err := ownership.ClusterOf(ctx, m.Live, leftover)
		if err != nil {
			return err
		}
		if owned != nil {
			continue
		}
		if err := objects.Delete(ctx, m.Client, leftover, client.Preconditions{UID: &leftover.UID}); err != nil {
			return err
		}
	}
	m.moved.Delete(key)
	return nil
}
