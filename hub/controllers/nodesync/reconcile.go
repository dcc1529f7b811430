package nodesync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/index"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/patch"
)

// syncToNode writes the Node of a Machine if it differs from what is wanted, and returns false if it could not be read, or is that of
// another Machine by now. The Node is read from the cache that Cluster API keeps of the cluster.
func (r *Reconciler) syncToNode(ctx context.Context, cluster client.ObjectKey, machine *clusterv1.Machine, w wanted) (bool, error) {
	err := r.ClusterCache.Watch(ctx, cluster, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name:         controllerName + "-nodes",
		Watcher:      r.controller,
		Kind:         &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(r.nodeToBootstraps(cluster)),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged},
	}))
	var remote client.Client
	if err == nil {
		remote, err = r.ClusterCache.GetClient(ctx, cluster)
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("connecting to the API of the cluster: %w", err)
	}
	if taken, err := r.isTaken(ctx, cluster, machine, remote); err != nil || taken {
		return false, err
	}
	return patchNode(ctx, remote, machine.Status.NodeRef.Name, w)
}

// isTaken reports whether the Node that a Machine names has the label of another Machine that names it: one that was installed again, and
// has registered as that one with the same Node name. Each would remove from the Node what the other has synced, without an end. The label
// of a Machine that does not exist says nothing: after a move to another hub all have other UIDs than the labels of their Nodes.
func (r *Reconciler) isTaken(
	ctx context.Context, cluster client.ObjectKey, machine *clusterv1.Machine, remote client.Reader,
) (bool, error) {
	node := &corev1.Node{}
	if found, err := objects.Get(ctx, remote, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); err != nil || !found {
		return false, err
	}
	uid := node.Labels[rkev1.MachineUIDLabel]
	if uid == "" || uid == string(machine.UID) {
		return false, nil
	}
	var machines clusterv1.MachineList
	err := r.Client.List(ctx, &machines, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.MatchingFields{index.MachineNodeNameField: node.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing the Machines that name Node %s: %w", node.Name, err)
	}
	return slices.ContainsFunc(machines.Items, func(m clusterv1.Machine) bool { return string(m.UID) == uid }), nil
}

func patchNode(ctx context.Context, remote client.Client, name string, w wanted) (bool, error) {
	node := &corev1.Node{}
	if found, err := objects.Get(ctx, remote, client.ObjectKey{Name: name}, node); err != nil || !found {
		return false, err
	}
	changed := node.DeepCopy()
	if !w.unreadable {
		merge(changed, w)
	}
	if !w.cordoned {
		uncordon(changed)
	}
	if equality.Semantic.DeepEqual(node, changed) {
		return true, nil
	}
	// The list of taints is written as a whole: the write must fail if another writer has changed it.
	locked := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := remote.Patch(ctx, changed, locked, fieldOwner); err != nil {
		return false, fmt.Errorf("syncing Node %s: %w", name, err)
	}
	return true, nil
}

// report sets the condition NodeSynced, with what could not be synced. It does not exist until something could not: a condition of each
// machine that says that nothing is wrong would be one more write for each.
func (r *Reconciler) report(ctx context.Context, bootstrap *rkev1.RKEBootstrap, w wanted) error {
	if len(w.problems) == 0 && w.refused == "" && !conditions.Has(bootstrap, rkev1.NodeSyncedCondition) {
		return nil
	}
	c := metav1.Condition{Type: rkev1.NodeSyncedCondition, Status: metav1.ConditionTrue, Reason: "Synced"}
	switch {
	case w.refused != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Refused", strings.Join(append([]string{w.refused}, w.problems...), "; ")
	case len(w.problems) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Invalid", strings.Join(w.problems, "; ")
	}
	return patch.Conditions(ctx, r.Client, bootstrap, fieldOwner, c)
}
