package cluster

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// reconcileOrigin returns false while the name is taken by another cluster, and while the Cluster was moved or restored to this hub and its
// objects were not yet: "clusterctl move" creates the Cluster before its Cluster API objects, and anything created in between would take
// their place.
func (r *Reconciler) reconcileOrigin(ctx context.Context, s *scope) (here bool, err error) {
	if s.taken != nil {
		s.created = s.taken
		return false, nil
	}
	origin := s.cluster.Annotations[rkev1.ClusterUIDAnnotation]
	if origin == string(s.cluster.UID) {
		return true, nil
	}
	if origin != "" && s.capiCluster == nil {
		s.created = cause.New("WaitingForMove", "Waiting for the Cluster API Cluster: the Cluster was moved or restored without it. "+
			"Restore it too, or remove the annotation %s to create a new cluster in its place", rkev1.ClusterUIDAnnotation)
		return false, nil
	}
	return true, r.annotate(ctx, s, rkev1.ClusterUIDAnnotation, string(s.cluster.UID))
}

// annotate writes an annotation of the Cluster before anything is created that depends on it.
func (r *Reconciler) annotate(ctx context.Context, s *scope, key, value string) error {
	before := maps.Clone(s.cluster.Annotations)
	metav1.SetMetaDataAnnotation(&s.cluster.ObjectMeta, key, value)
	if err := s.patch.PatchObject(ctx, s.cluster); err != nil {
		s.cluster.Annotations = before
		return fmt.Errorf("writing the annotation %s of the Cluster: %w", key, err)
	}
	return nil
}
