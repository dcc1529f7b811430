package nodedrain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/access/clusternodes"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/machinestate"
	"github.com/drover-dev/drover/hub/util/message"
)

// How often a drain looks at the Pods, and how often one that is stuck. They are not watched: that would hold every Pod of every cluster in
// memory, for the few minutes in which one Node is drained.
const (
	pollInterval      = 2 * time.Second
	pollIntervalStuck = 15 * time.Second
)

// scope is what one reconcile has read and found.
type scope struct {
	secret *corev1.Secret
	// machine is nil where it is gone.
	machine *clusterv1.Machine
	cluster client.ObjectKey
	// options are those of the request; set by reconcile.
	options rkev1.DrainOptions
	// state is what was read, and then what is to be written.
	state state
	// ended is set when the drain has ended, so that its annotations are to be removed.
	ended bool

	requeueAfter time.Duration
}

func (r *Reconciler) reconcile(ctx context.Context, s *scope) {
	s.state.problem, s.state.waiting = "", ""
	var err error
	if s.state.requested != "" {
		s.options, err = decodeOptions(s.state.requested)
	}
	switch {
	case s.machine == nil || !s.machine.DeletionTimestamp.IsZero():
		// Cluster API drains the Node of a deleted Machine, and then deletes it.
		s.ended = true
		return
	case err != nil:
		s.state.problem = err.Error()
		return
	case s.state.uncordon == s.state.requested:
		err = r.reconcileUncordon(ctx, s)
	case s.state.done != s.state.requested:
		err = r.reconcileDrain(ctx, s)
	}
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		s.state.problem = "no connection to the cluster's API"
	case unavailable(err):
		// As while the API server restarts. Retried soon, without the back-off after a failure.
		ctrl.LoggerFrom(ctx).V(1).Info("The API of the cluster does not answer", "error", err.Error())
		s.state.waiting, s.requeueAfter = "the cluster's API does not answer", pollInterval
	case err != nil:
		// As an admission webhook of the cluster that refuses a change of the Node. Retried without the back-off after a failure, at the end
		// of which the Node would stay as it is long after what is wrong was corrected.
		ctrl.LoggerFrom(ctx).Error(err, "Draining or uncordoning a Node failed")
		s.showFailure(err)
	}
}

// showFailure says why the API of the cluster did not do something. An internal error may pass, as one of etcd or of a webhook that starts.
func (s *scope) showFailure(err error) {
	s.requeueAfter = pollIntervalStuck
	text := message.Bound(err.Error(), message.MaxError)
	if apierrors.IsInternalError(err) {
		s.state.waiting = text
	} else {
		s.state.problem = text
	}
}

// unavailable reports whether an error is no answer of an API server, or says to retry.
func unavailable(err error) bool {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
			apierrors.IsTooManyRequests(err)
	}
	return true
}

// reconcileDrain cordons the Node, calls the pre-drain hooks, and evicts Pods.
func (r *Reconciler) reconcileDrain(ctx context.Context, s *scope) error {
	s.state.done = ""
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}
	drain := s.options.Enabled && node != nil
	if drain {
		if ready, err := r.cordon(ctx, s, node); err != nil || !ready {
			return err
		}
	}
	if len(s.options.PreDrainHooks) > 0 {
		s.state.preDrain = s.state.requested
		if s.waitForHooks("pre-drain", s.options.PreDrainHooks) {
			return nil
		}
	}
	if drain {
		if drained, err := r.evictPods(ctx, s, node); err != nil || !drained {
			return err
		}
	}
	s.state.done = s.state.requested
	return nil
}

// reconcileUncordon calls the post-drain hooks, unless the drain ended before the pre-drain hooks were called, and uncordons the Node.
func (r *Reconciler) reconcileUncordon(ctx context.Context, s *scope) error {
	if len(s.options.PostDrainHooks) > 0 && (s.state.preDrain != "" || s.state.done != "") {
		s.state.postDrain = s.state.requested
		if s.waitForHooks("post-drain", s.options.PostDrainHooks) {
			return nil
		}
	}
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}
	if node != nil && s.state.cordoned && (node.Spec.Unschedulable || node.Annotations[rkev1.DrainCordonedAnnotation] != "") {
		if err := r.setUnschedulable(ctx, s, node, false); err != nil {
			return err
		}
	}
	s.ended = true
	return nil
}

// waitForHooks reports whether any hook has not answered. An answer is an annotation of the plan Secret, which is watched.
func (s *scope) waitForHooks(which string, hooks []rkev1.DrainHook) bool {
	var waiting []string
	for _, hook := range hooks {
		if hook.Annotation != "" && s.secret.Annotations[hook.Annotation] != s.state.requested {
			waiting = append(waiting, hook.Annotation)
		}
	}
	if len(waiting) > 0 {
		s.state.waiting = fmt.Sprintf("waiting for the %s hooks %s to answer", which, joinNames(waiting))
	}
	return len(waiting) > 0
}

// node reads the machine's Node past the cache, so that whether it is cordoned is not outdated; nil where there is none.
func (r *Reconciler) node(ctx context.Context, s *scope) (*corev1.Node, error) {
	reader, err := r.ClusterCache.GetReader(ctx, s.cluster)
	if err != nil {
		return nil, err
	}
	nodes, err := clusternodes.Read(ctx, reader)
	if err != nil {
		return nil, fmt.Errorf("listing the Nodes of the cluster: %w", err)
	}
	found := machinestate.NewNodes(nodes).Of(s.machine)
	if found == nil {
		return nil, nil
	}
	remote, err := r.ClusterCache.GetUncachedClient(ctx, s.cluster)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{}
	err = remote.Get(ctx, client.ObjectKeyFromObject(found), node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Node %s: %w", found.Name, err)
	}
	return node, nil
}

// cordon reports whether the Node is cordoned. That it is about to be is written first, so that a hub that restarts in between uncordons
// what it has cordoned, and nothing else.
func (r *Reconciler) cordon(ctx context.Context, s *scope, node *corev1.Node) (bool, error) {
	switch {
	case node.Spec.Unschedulable:
		return true, nil
	case !s.state.cordoned:
		s.state.cordoned = true
		return false, nil
	}
	return true, r.setUnschedulable(ctx, s, node, true)
}

// setUnschedulable marks a Node that it cordons, so that it is known as cordoned by a drain in a snapshot of the cluster that is restored
// later: see package nodesync. The mark is set after that of the plan Secret, and removed before it.
func (r *Reconciler) setUnschedulable(ctx context.Context, s *scope, node *corev1.Node, unschedulable bool) error {
	remote, err := r.ClusterCache.GetClient(ctx, s.cluster)
	if err != nil {
		return err
	}
	changed := node.DeepCopy()
	changed.Spec.Unschedulable = unschedulable
	if unschedulable {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, rkev1.DrainCordonedAnnotation, "true")
	} else {
		delete(changed.Annotations, rkev1.DrainCordonedAnnotation)
	}
	if err := remote.Patch(ctx, changed, client.MergeFrom(node), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("setting unschedulable to %t on Node %s: %w", unschedulable, node.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Cordoned or uncordoned a Node", "Node", node.Name, "unschedulable", unschedulable)
	return nil
}
