package cluster

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// annotate writes an annotation of the Cluster before anything is made that it is to find again.
func (r *Reconciler) annotate(ctx context.Context, s *scope, key, value string) error {
	before := maps.Clone(s.cluster.Annotations)
	metav1.SetMetaDataAnnotation(&s.cluster.ObjectMeta, key, value)
	if err := s.patch.PatchObject(ctx, s.cluster); err != nil {
		s.cluster.Annotations = before
		return fmt.Errorf("writing the annotation %s of the Cluster: %w", key, err)
	}
	return nil
}
