package etcdremoval

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
)

// report writes the condition EtcdMemberRemoved of a Machine.
func (r *Reconciler) report(ctx context.Context, machine *clusterv1.Machine, v verdict) error {
	condition := metav1.Condition{Type: rkev1.EtcdMemberRemovedCondition, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message}
	if v.action == free {
		condition.Status = metav1.ConditionTrue
	}
	return patch.Conditions(ctx, r.Client, machine, fieldOwner, condition)
}
