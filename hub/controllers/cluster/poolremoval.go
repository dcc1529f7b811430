package cluster

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/cluster/pool"
	"github.com/drover-dev/drover/hub/util/cause"
)

// keepsServers reports whether a pool that is no longer in the spec stays, since the data of a cluster that was started would be deleted
// with its machines: no other machine has the role etcd, or the pool of servers that may replace it cannot be created. To delete the data,
// users delete the Cluster.
func (r *Reconciler) keepsServers(ctx context.Context, s *scope, deployment *clusterv1.MachineDeployment) (bool, error) {
	labels := deployment.Spec.Template.Labels
	etcd := labels[rkev1.EtcdRoleLabel] == "true"
	if !s.started() || !etcd && labels[rkev1.ControlPlaneRoleLabel] != "true" || !deployment.DeletionTimestamp.IsZero() {
		return false, nil
	}
	missing, others := missingServers(s.pools), true
	if missing == "" && etcd && !slices.ContainsFunc(s.pools, hasEtcd) {
		var err error
		if others, err = r.hasCustomEtcd(ctx, s.cluster); err != nil {
			return false, err
		}
	}
	if !others {
		s.partial = append(s.partial, cause.New("InvalidMachinePool", "spec.rkeConfig.machinePools: the pool %s is not removed: no other "+
			"machine of the cluster has the role etcd, and its data would be deleted; add a pool with etcdRole, or delete the Cluster",
			deployment.Labels[rkev1.MachinePoolNameLabel]))
	}
	if missing != "" {
		ctrl.LoggerFrom(ctx).Info("Keeping a machine pool that is no longer in the spec until the one that may replace it exists",
			"MachineDeployment", client.ObjectKeyFromObject(deployment), "pool", missing)
	}
	return missing != "" || !others, nil
}

// started reports whether the cluster has data: its API was reached once.
func (s *scope) started() bool {
	return s.capiCluster != nil && ptr.Deref(s.capiCluster.Status.Initialization.ControlPlaneInitialized, false)
}

// checkQuantity lets a pool keep its machines whose quantity is 0, if the data of the cluster would be deleted with them.
func (r *Reconciler) checkQuantity(ctx context.Context, p *poolScope) error {
	if p.spec.DesiredQuantity() > 0 || ptr.Deref(p.deployment.Spec.Replicas, 1) == 0 {
		return nil
	}
	last, err := r.isLastEtcd(ctx, p)
	if err != nil || !last {
		return err
	}
	p.problem = cause.New("InvalidMachinePool", "%s is 0: no other machine of the cluster has the role etcd, and its data would be deleted; "+
		"set it to 1 or more, add a pool with etcdRole, or delete the Cluster", pool.Field(p.spec.Name, "quantity"))
	return errPoolWaits
}

// isLastEtcd reports whether the data of a cluster that was started is on the machines of one pool only. Another pool counts once its
// MachineDeployment makes machines: one whose machine template does not exist gets none.
func (r *Reconciler) isLastEtcd(ctx context.Context, p *poolScope) (bool, error) {
	if !p.started || !p.spec.EtcdRole {
		return false, nil
	}
	all := p.cluster.Spec.RKEConfig.MachinePools
	for i := range all {
		other := p.deployments[pool.Name(p.cluster.Name, all[i].Name)]
		if all[i].Name != p.spec.Name && all[i].EtcdRole && all[i].DesiredQuantity() > 0 && makesMachines(other) {
			return false, nil
		}
	}
	others, err := r.hasCustomEtcd(ctx, p.cluster)
	return !others && err == nil, err
}

// makesMachines reports whether there is a MachineDeployment that makes machines. One that is being deleted, since its pool was removed and
// is in the spec again, does not: the pool gets another one only when its last machine is gone. Nor does one with 0 replicas, to which a
// higher quantity was not written yet, as for a pool that is invalid.
func makesMachines(md *clusterv1.MachineDeployment) bool {
	return md != nil && md.DeletionTimestamp.IsZero() && ptr.Deref(md.Spec.Replicas, 1) > 0
}

// missingServers names a pool of servers whose MachineDeployment makes no machines, such as one whose machine template does not exist.
// It is empty if there is none.
func missingServers(pools []*poolScope) string {
	for _, p := range pools {
		if !makesMachines(p.deployment) && (p.spec.EtcdRole || p.spec.ControlPlaneRole) && p.spec.DesiredQuantity() > 0 {
			return p.spec.Name
		}
	}
	return ""
}

// hasEtcd reports whether a pool asks for machines with the role etcd.
func hasEtcd(p *poolScope) bool { return p.spec.EtcdRole && p.spec.DesiredQuantity() > 0 }

// hasCustomEtcd reports whether a machine of no pool has the role etcd.
func (r *Reconciler) hasCustomEtcd(ctx context.Context, cluster *provisioningv1.Cluster) (bool, error) {
	var list clusterv1.MachineList
	err := r.Client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingLabels{
		clusterv1.ClusterNameLabel: cluster.Name, rkev1.EtcdRoleLabel: "true"}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Machines with etcd: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(m clusterv1.Machine) bool {
		return m.DeletionTimestamp.IsZero() && m.Labels[clusterv1.MachineDeploymentNameLabel] == ""
	}), nil
}
