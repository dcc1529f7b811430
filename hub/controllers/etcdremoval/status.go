package etcdremoval

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/failure"
)

// report writes the condition EtcdMemberRemoved of a Machine, and nothing if it is as it should be.
func (r *Reconciler) report(ctx context.Context, machine *clusterv1.Machine, v verdict) error {
	helper, err := patch.NewHelper(machine, r.Client)
	if err != nil {
		return fmt.Errorf("preparing the patch of Machine %s: %w", machine.Name, err)
	}
	condition := metav1.Condition{Type: rkev1.EtcdMemberRemovedCondition, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message}
	if v.action == free {
		condition.Status = metav1.ConditionTrue
	}
	conditions.Set(machine, condition)
	err = helper.Patch(ctx, machine, patch.WithOwnedConditions{Conditions: []string{rkev1.EtcdMemberRemovedCondition}})
	if err != nil && !failure.IsGone(err) {
		return fmt.Errorf("writing the condition of Machine %s: %w", machine.Name, err)
	}
	return nil
}
