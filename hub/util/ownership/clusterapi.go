package ownership

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
)

// ClusterAPI returns the Cluster API Cluster of a Cluster of provisioning.cattle.io, which has its name. It is nil without a Cause if it
// does not exist, or if the Cluster is imported. The Cause says that the one of this name was made for something else.
func ClusterAPI(ctx context.Context, from client.Reader, cluster *provisioningv1.Cluster) (*clusterv1.Cluster, *cause.Cause, error) {
	if cluster.Spec.RKEConfig == nil {
		return nil, nil, nil
	}
	capi := &clusterv1.Cluster{}
	found, err := objects.Get(ctx, from, client.ObjectKeyFromObject(cluster), capi)
	if err != nil || !found {
		return nil, nil, err
	}
	if !OfProvisioningCluster(capi, cluster.Name) {
		return nil, NameTaken(capi), nil
	}
	return capi, nil, nil
}

// NameTaken returns the Cause for an object of Cluster API that has the name of a Cluster of provisioning.cattle.io and was not made for
// it.
func NameTaken(o client.Object) *cause.Cause {
	kind := objects.KindOf(o)
	if _, ok := o.(*clusterv1.Cluster); ok {
		kind = "Cluster API Cluster"
	}
	return cause.New(ReasonNameTaken, "%s %s exists and was not made for this Cluster; give the Cluster another name", kind, o.GetName())
}
