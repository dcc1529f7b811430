package custommachine

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

// reconcileTaken keeps the Node of a machine that was installed again, and has registered as another one with the same Node name. k3s and
// RKE2 make the provider ID of that name, so that both Machines name the Node, and Cluster API would drain and delete it with the earlier
// one. A kubelet does not create its Node once more before it is restarted.
func (r *Reconciler) reconcileTaken(ctx context.Context, s *scope) error {
	by, err := r.takenBy(ctx, s)
	if err != nil {
		return err
	}
	name := ""
	if by != "" {
		name = s.node.Name
		s.node, s.waiting = nil, cause.New("NodeTaken", "Node %s is that of Machine %s by now: the machine was installed again. "+
			"Delete Machine %s; the Node stays", name, by, s.machine.Name)
	}
	switch {
	case annotations.HasPaused(s.machine):
		return nil // Cluster API does nothing to it either
	case name == "" || s.machine.DeletionTimestamp.IsZero(),
		annotations.HasWithPrefix(clusterv1.PreTerminateDeleteHookAnnotationPrefix, s.machine.Annotations):
		// One with etcd that is being deleted waits for its pre-terminate hook, which says what to do. Its Node is not to be drained for that.
		return r.setHook(ctx, s.machine, name)
	}
	return r.release(ctx, s.machine, name)
}

// takenBy is the name of the other custom machine of the cluster whose label the Node has; empty for none. A label that is nobody's says
// nothing: after a move to another hub, all Machines have other UIDs than the labels of their Nodes. Neither does that of a machine of
// another cluster: whoever administers a cluster writes its labels.
func (r *Reconciler) takenBy(ctx context.Context, s *scope) (string, error) {
	if s.node == nil {
		return "", nil
	}
	uid := s.node.Labels[rkev1.MachineUIDLabel]
	if uid == "" || uid == string(s.machine.UID) {
		return "", nil
	}
	var others rkev1.CustomMachineList
	err := r.Client.List(ctx, &others, client.InNamespace(s.machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.machine.Spec.ClusterName}, client.MatchingFields{indexMachineUID: uid})
	if err != nil {
		return "", fmt.Errorf("looking for the CustomMachine of Node %s: %w", s.node.Name, err)
	}
	for i := range others.Items {
		if name := others.Items[i].Name; name != s.custom.Name {
			return name, nil
		}
	}
	return "", nil
}

// setHook sets the pre-drain hook of a Machine for the Node that is not its own any more, or removes it where there is none.
func (r *Reconciler) setHook(ctx context.Context, machine *clusterv1.Machine, node string) error {
	if _, has := machine.Annotations[rkev1.NodeTakenPreDrainHook]; has == (node != "") {
		return nil
	}
	changed := machine.DeepCopy()
	if node == "" {
		delete(changed.Annotations, rkev1.NodeTakenPreDrainHook)
	} else {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, rkev1.NodeTakenPreDrainHook, node)
	}
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(machine), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating the pre-drain hook of Machine %s: %w", machine.Name, err)
	}
	return nil
}

// release ends the deletion of a Machine without its Node: the objects that it owns are deleted with it.
func (r *Reconciler) release(ctx context.Context, machine *clusterv1.Machine, node string) error {
	changed := machine.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, clusterv1.MachineFinalizer) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine without its Node, which is that of another Machine", "node", node)
	locked := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, locked, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s without its Node: %w", machine.Name, err)
	}
	return nil
}
