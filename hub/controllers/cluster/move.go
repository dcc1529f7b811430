package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

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
