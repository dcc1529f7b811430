package cluster

import (
	"context"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// The objects of Cluster API have the name of the Cluster. Whoever may create Clusters of provisioning.cattle.io, and nothing else, must
// neither change nor delete what somebody else has written under that name.

// isOwnedBy reports whether the Cluster has made an object of Cluster API.
func isOwnedBy(o client.Object, cluster *provisioningv1.Cluster) bool {
	return ownership.OfProvisioningCluster(o, cluster.Name)
}

// mayWrite reports whether an object of the Cluster's name is the Cluster's. Another hub may have left the owner out of the objects that
// the Cluster API Cluster owns, which is checked first.
func mayWrite(o client.Object, cluster *provisioningv1.Cluster) bool {
	_, first := o.(*clusterv1.Cluster)
	return isOwnedBy(o, cluster) || !first && ownership.OfClusterNamed(o, cluster.Name)
}

// checkNames returns a cause for the first of the objects that exists and belongs to something else. One that the cache does not have
// is about to be created: that is checked with the API server.
func (r *Reconciler) checkNames(ctx context.Context, cluster *provisioningv1.Cluster, all []client.Object) (*cause.Cause, error) {
	for _, wanted := range all {
		object := reflect.New(reflect.TypeOf(wanted).Elem()).Interface().(client.Object) // without the owners that it is to have
		key := client.ObjectKeyFromObject(wanted)
		found, err := objects.Get(ctx, r.Client, key, object)
		if err == nil && !found {
			found, err = objects.Get(ctx, r.Live, key, object)
		}
		if err != nil {
			return nil, err
		}
		if found && !mayWrite(object, cluster) {
			return ownership.NameTaken(object), nil
		}
	}
	return nil, nil
}
