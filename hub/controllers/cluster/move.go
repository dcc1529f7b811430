package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// removeOrphans removes the management Cluster of a Cluster that is gone: its registration tokens must not outlive it. That happens only
// where the Cluster was moved to another hub, since a deletion removes the management Cluster first.
func (r *Reconciler) removeOrphans(ctx context.Context, key types.NamespacedName) error {
	var orphans managementv3.ClusterList
	err := r.Client.List(ctx, &orphans, client.MatchingLabels{rkev1.OwnerClusterNamespaceLabel: key.Namespace, rkev1.OwnerClusterNameLabel: key.Name})
	if err != nil {
		return fmt.Errorf("listing the management Clusters of a Cluster that is gone: %w", err)
	}
	for i := range orphans.Items {
		// The cache may be older than the Cluster.
		if found, err := read(ctx, r.Live, key, &provisioningv1.Cluster{}); err != nil || found {
			return err
		}
		orphan := &orphans.Items[i]
		if err := r.Client.Delete(ctx, orphan, client.Preconditions{UID: &orphan.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the management Cluster %s: %w", orphan.Name, err)
		}
	}
	return nil
}
