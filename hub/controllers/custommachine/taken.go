package custommachine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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
	by, err := r.takenBy(ctx, s.node, s.machine)
	if err != nil {
		return err
	}
	if by == "" {
		return r.setHook(ctx, s.machine, "")
	}
	name := s.node.Name
	s.node, s.waiting = nil, cause.New("NodeTaken", "Node %s is that of Machine %s by now: the machine was installed again. "+
		"Delete Machine %s; the Node stays", name, by, s.machine.Name)
	if s.machine.DeletionTimestamp.IsZero() {
		return r.setHook(ctx, s.machine, name)
	}
	return r.release(ctx, s.machine, name)
}

// takenBy is the name of the other custom machine whose label a Node has; empty for none. A label that is nobody's says nothing: after a
// move to another hub, all Machines have other UIDs than the labels of their Nodes.
func (r *Reconciler) takenBy(ctx context.Context, node *corev1.Node, machine *clusterv1.Machine) (string, error) {
	if node == nil {
		return "", nil
	}
	uid := node.Labels[rkev1.MachineUIDLabel]
	if uid == "" || uid == string(machine.UID) {
		return "", nil
	}
	var others rkev1.CustomMachineList
	err := r.Client.List(ctx, &others, client.InNamespace(machine.Namespace), client.MatchingFields{indexMachineUID: uid})
	if err != nil {
		return "", fmt.Errorf("looking for the CustomMachine of Node %s: %w", node.Name, err)
	}
	if len(others.Items) == 0 {
		return "", nil
	}
	return others.Items[0].Name, nil
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

// release ends the deletion of a Machine without its Node: the objects that it owns are deleted with it. One with etcd waits for its
// pre-terminate hook, which says what to do.
func (r *Reconciler) release(ctx context.Context, machine *clusterv1.Machine, node string) error {
	changed := machine.DeepCopy()
	if annotations.HasWithPrefix(clusterv1.PreTerminateDeleteHookAnnotationPrefix, machine.Annotations) ||
		!controllerutil.RemoveFinalizer(changed, clusterv1.MachineFinalizer) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting Machine without its Node, which is that of another Machine", "node", node)
	locked := client.MergeFromWithOptions(machine, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, locked, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s without its Node: %w", machine.Name, err)
	}
	return nil
}
