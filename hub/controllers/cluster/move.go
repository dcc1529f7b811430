package cluster

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// deleteForMoveAnnotation is set by "clusterctl move" on what it is about to take away from the hub that it came from.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// isMovedAway tells whether a Cluster only leaves this hub, so that nothing of it may be deleted.
func isMovedAway(cluster *provisioningv1.Cluster) bool {
	_, moved := cluster.Annotations[deleteForMoveAnnotation]
	return moved
}

// reconcileOrigin finds out whether the Cluster was moved or restored to this hub, and returns false as long as what belongs to it has not
// followed: "clusterctl move" brings the Cluster before its Cluster API objects, and anything made in between would take their place.
func (r *Reconciler) reconcileOrigin(ctx context.Context, s *scope) (here bool, err error) {
	origin := s.cluster.Annotations[rkev1.ClusterUIDAnnotation]
	if origin == string(s.cluster.UID) {
		return true, nil
	}
	if origin != "" && s.capiCluster == nil {
		s.created = &problem{"WaitingForMove", fmt.Sprintf("The Cluster was moved or restored here, its Cluster API Cluster has not followed yet. "+
			"Bring that back too; or, to make a new cluster in its place, remove the annotation %s", rkev1.ClusterUIDAnnotation)}
		return false, nil
	}
	return true, r.annotate(ctx, s, rkev1.ClusterUIDAnnotation, string(s.cluster.UID))
}

// annotate writes an annotation of the Cluster and keeps the status that the pass has made so far.
func (r *Reconciler) annotate(ctx context.Context, s *scope, key, value string) error {
	before, status := s.cluster.DeepCopy(), s.cluster.Status
	metav1.SetMetaDataAnnotation(&s.cluster.ObjectMeta, key, value)
	if err := r.Client.Patch(ctx, s.cluster, client.MergeFrom(before), fieldOwner); err != nil {
		s.cluster.Annotations = before.Annotations
		return fmt.Errorf("writing the annotation %s of the Cluster: %w", key, err)
	}
	s.cluster.Status = status
	return nil
}

// departures are the Clusters that were seen to leave for another hub, until what they have left behind is removed. They are not written
// down: a hub that stops in that moment leaves a management Cluster that takes no machines, since there is no Cluster behind it.
type departures struct{ keys sync.Map }

// note is a predicate that lets everything through and notes which Clusters leave.
func (d *departures) note() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if cluster, ok := e.Object.(*provisioningv1.Cluster); ok && isMovedAway(cluster) {
			d.keys.Store(client.ObjectKeyFromObject(cluster), nil)
		}
		return true
	}}
}

// removeLeftovers removes the management Cluster of a Cluster that has left for another hub: its registration tokens must not outlive it. A
// deletion removes the management Cluster first, and one that is there before its Cluster may be part of a backup that is being restored.
func (r *Reconciler) removeLeftovers(ctx context.Context, key types.NamespacedName) error {
	if _, left := r.departures.keys.Load(key); !left {
		return nil
	}
	var leftovers managementv3.ClusterList
	err := r.Client.List(ctx, &leftovers, client.MatchingLabels{rkev1.OwnerClusterNamespaceLabel: key.Namespace, rkev1.OwnerClusterNameLabel: key.Name})
	if err != nil {
		return fmt.Errorf("listing the management Clusters of a Cluster that is gone: %w", err)
	}
	for i := range leftovers.Items {
		// The Cluster may be back, and the cache older than that.
		if found, err := read(ctx, r.Live, key, &provisioningv1.Cluster{}); err != nil || found {
			return err
		}
		leftover := &leftovers.Items[i]
		if err := r.Client.Delete(ctx, leftover, client.Preconditions{UID: &leftover.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the management Cluster %s: %w", leftover.Name, err)
		}
	}
	r.departures.keys.Delete(key)
	return nil
}
