package custommachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// reconcileNodeRef has a Machine name the Node that its machine has now. Cluster API sets the name once, and looks the Node up by the
// provider ID: a Machine whose machine has another host name would name a Node that is gone. The Node that is there would get no labels and
// taints, and would be neither drained nor deleted with the Machine.
func (r *Reconciler) reconcileNodeRef(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.node == nil || s.node.Labels[rkev1.MachineUIDLabel] != string(s.machine.UID) || annotations.HasPaused(s.machine) {
		return ctrl.Result{}, nil
	}
	// Until Cluster API has taken the provider ID over, it finds the earlier Node.
	named := s.machine.Status.NodeRef.Name
	if named == "" || named == s.node.Name || s.machine.Spec.ProviderID != s.node.Spec.ProviderID {
		return ctrl.Result{}, nil
	}
	changed := s.machine.DeepCopy()
	changed.Status.NodeRef.Name = s.node.Name
	locked := client.MergeFromWithOptions(s.machine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, changed, locked, fieldOwner); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("writing the name of the Node to Machine %s: %w", s.machine.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("The Node of the Machine has another name now", "node", s.node.Name, "before", named)
	return ctrl.Result{}, nil
}
