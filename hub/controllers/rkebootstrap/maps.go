package rkebootstrap

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
)

// controlPlaneToBootstraps maps an RKEControlPlane to the RKEBootstraps whose data it may change: those of machines that have not reported.
func (r *Reconciler) controlPlaneToBootstraps(ctx context.Context, o client.Object) []ctrl.Request {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind != "Cluster" || ref.APIVersion != clusterv1.GroupVersion.String() {
			continue
		}
		var list clusterv1.MachineList
		if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()),
			client.MatchingLabels{clusterv1.ClusterNameLabel: ref.Name}, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Failed to list Machines", "Cluster", ref.Name)
			return nil
		}
		var requests []ctrl.Request
		for i := range list.Items {
			switch conditions.GetReason(&list.Items[i], rkev1.PlanAppliedCondition) {
			case "", rkev1.WaitingForPlanReason:
				requests = append(requests, mapfuncs.MachineToBootstrap(ctx, &list.Items[i])...)
			}
		}
		return requests
	}
	return nil
}
