package rkecluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// scope is what one reconcile has read and found.
type scope struct {
	infra *rkev1.RKECluster
	// cluster is nil until Cluster API has set the owner reference.
	cluster *clusterv1.Cluster
	// refused says why the Cluster that the RKECluster names as its owner does not count.
	refused *cause.Cause
	// machines is the number of Machines that a deletion waits for.
	machines int
	// err is the error of a deletion.
	err error
}

// reconcileDelete waits for the cluster's Machines: Cluster API cannot delete them without their Cluster.
func (r *Reconciler) reconcileDelete(ctx context.Context, s *scope) error {
	if s.cluster != nil {
		var machines clusterv1.MachineList
		err := r.Client.List(ctx, &machines, client.InNamespace(s.infra.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}, client.UnsafeDisableDeepCopy)
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
