package infracluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
)

// scope is what one pass has read.
type scope struct {
	infra *rkev1.RKECluster
	// cluster is nil as long as Cluster API has not taken the RKECluster over.
	cluster *clusterv1.Cluster
	// refused says why the Cluster that the RKECluster names as its owner does not count.
	refused *ownership.Refusal
	// machines is how many Machines a deletion waits for.
	machines int
	// err is what a deletion failed with.
	err error
}

// reconcileDelete waits for the cluster's Machines: without their Cluster, Cluster API could not remove them any more.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) error {
	if s.cluster != nil {
		var machines clusterv1.MachineList
		err := r.Client.List(ctx, &machines, client.InNamespace(s.infra.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("listing the Machines of the Cluster %s: %w", s.cluster.Name, err)
		}
		s.machines = len(machines.Items)
	}
	if s.machines == 0 {
		controllerutil.RemoveFinalizer(s.infra, Finalizer)
	}
	return nil
}
