package nodesync

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
)

// carry writes to the Node if it is not as it should be, and tells whether it could be looked at. The Node is read from the cache that Cluster
// API keeps of the cluster.
func (r *Reconciler) carry(ctx context.Context, cluster client.ObjectKey, name string, w wanted) (bool, error) {
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
	return carryTo(ctx, remote, name, w)
}

func carryTo(ctx context.Context, remote client.Client, name string, w wanted) (bool, error) {
	node := &corev1.Node{}
	if err := remote.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("reading Node %s: %w", name, err)
	}
	if w.unreadable {
		return true, nil
	}
	changed := node.DeepCopy()
	merge(changed, w)
	if equality.Semantic.DeepEqual(node, changed) {
		return true, nil
	}
	// Taints are a list that is written as a whole: a write that does not know of another's must fail.
	locked := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := remote.Patch(ctx, changed, locked, fieldOwner); err != nil {
		return false, fmt.Errorf("writing labels and taints of Node %s: %w", name, err)
	}
	return true, nil
}

// report tells in the condition NodeSynced what could not be carried.
func (r *Reconciler) report(ctx context.Context, bootstrap *rkev1.RKEBootstrap, w wanted) error {
	c := metav1.Condition{Type: rkev1.NodeSyncedCondition, Status: metav1.ConditionTrue, Reason: "Synced"}
	if len(w.problems) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Invalid", strings.Join(w.problems, "; ")
	}
	return patch.Conditions(ctx, r.Client, bootstrap, fieldOwner, c)
}
