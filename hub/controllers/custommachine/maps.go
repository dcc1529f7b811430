package custommachine

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// indexMachineUID indexes CustomMachines by the UID of their Machine, which their Node has as a label.
const indexMachineUID = "metadata.ownerReferences.machineUID"

func machineUIDs(o client.Object) []string {
	var uids []string
	for _, ref := range o.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "Machine" {
			uids = append(uids, string(ref.UID))
		}
	}
	return uids
}

// machineToCustomMachine maps a Machine.
var machineToCustomMachine = util.MachineToInfrastructureMapFunc(rkev1.GroupVersion.WithKind("CustomMachine"))

// nodeToCustomMachines maps Nodes of a cluster to the machine whose label they have, and to those that name them: a Node that gets the
// label of another machine is no longer theirs.
func (r *Reconciler) nodeToCustomMachines(cluster client.ObjectKey) handler.MapFunc {
	return func(ctx context.Context, node client.Object) []ctrl.Request {
		requests := r.nodeToCustomMachine(ctx, node)
		var machines clusterv1.MachineList
		err := r.Client.List(ctx, &machines, client.InNamespace(cluster.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
			client.MatchingFields{index.MachineNodeNameField: node.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list Machines", "Cluster", cluster)
			return requests
		}
		for i := range machines.Items {
			for _, request := range machineToCustomMachine(ctx, &machines.Items[i]) {
				if !slices.Contains(requests, request) {
					requests = append(requests, request)
				}
			}
		}
		return requests
	}
}

// nodeToCustomMachine maps a Node of any cluster. UIDs are unique across clusters.
func (r *Reconciler) nodeToCustomMachine(ctx context.Context, o client.Object) []ctrl.Request {
	uid := o.GetLabels()[rkev1.MachineUIDLabel]
	if uid == "" {
		return nil
	}
	return objects.List(ctx, r.Client, &rkev1.CustomMachineList{}, client.MatchingFields{indexMachineUID: uid})
}

// clusterToCustomMachines maps a Cluster, or an RKECluster, which usually has the name of its Cluster.
func (r *Reconciler) clusterToCustomMachines(ctx context.Context, o client.Object) []ctrl.Request {
	name := o.GetName()
	if _, infra := o.(*rkev1.RKECluster); infra && o.GetLabels()[clusterv1.ClusterNameLabel] != "" {
		name = o.GetLabels()[clusterv1.ClusterNameLabel]
	}
	return objects.List(ctx, r.Client, &rkev1.CustomMachineList{}, client.InNamespace(o.GetNamespace()),
		client.MatchingLabels{clusterv1.ClusterNameLabel: name})
}

// nodeChanged drops the heartbeats of kubelets.
var nodeChanged = predicates.OnUpdate(func(before, after *corev1.Node) bool {
	return before.Spec.ProviderID != after.Spec.ProviderID || !maps.Equal(before.Labels, after.Labels) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses)
})
