package ownership

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// KubeconfigOfCluster returns why a kubeconfig Secret, which Cluster API finds by its name, is another cluster's; nil if it is not. The hub
// writes such Secrets for RKEControlPlanes and for imported Clusters of provisioning.cattle.io, Rancher for all of the latter: an owner of
// these kinds must be that of the Cluster API Cluster. Secrets without one are those of users, of other providers, and of backups that lost
// their owners: whoever may write such a Secret may write its labels, which are not required.
func KubeconfigOfCluster(
	ctx context.Context, from client.Reader, kubeconfig client.Object, cluster *clusterv1.Cluster,
) (*cause.Cause, error) {
	for _, ref := range kubeconfig.GetOwnerReferences() {
		own, kind := true, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
		switch kind {
		case provisioningv1.GroupVersion.WithKind("Cluster").GroupKind():
			var err error
			if own, err = hasCreated(ctx, from, ref, cluster); err != nil {
				return nil, err
			}
		case rkev1.GroupVersion.WithKind("RKEControlPlane").GroupKind():
			own = rkev1.Refers(cluster.Spec.ControlPlaneRef, ref.Kind) && cluster.Spec.ControlPlaneRef.Name == ref.Name
		}
		if !own {
			return cause.New(ReasonOwnerMismatch, "metadata.ownerReferences of kubeconfig Secret %s names %s %s of %s, which does not belong to "+
				"Cluster API Cluster %s; give one of the two another name, or delete the Secret if its owner no longer exists",
				kubeconfig.GetName(), ref.Kind, ref.Name, kind.Group, cluster.Name), nil
		}
	}
	return nil, nil
}

// hasCreated reports whether an owner reference is to the Cluster of provisioning.cattle.io that a Cluster API Cluster was created for. An
// imported one has none, and an earlier one of the name counts as gone, as it does for a garbage collector.
func hasCreated(ctx context.Context, from client.Reader, ref metav1.OwnerReference, cluster *clusterv1.Cluster) (bool, error) {
	if ref.Name != cluster.Name || !OfProvisioningCluster(cluster, ref.Name) {
		return false, nil
	}
	owner := &provisioningv1.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKeyFromObject(cluster), owner)
	return found && owner.UID == ref.UID && owner.Spec.RKEConfig != nil, err
}
