package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/drover-dev/drover/hub/controllers/machinestate"
)

// How long a drain waits before it looks at the Pods again. They are not watched: that would hold every Pod of every cluster in memory, for
// the few minutes in which one Node is drained.
const (
	lookAgain     = 2 * time.Second
	lookAgainLate = 15 * time.Second
)

// step does what can be done now.
func (r *Reconciler) step(ctx context.Context, s *scope) error {
	s.notes.problem, s.notes.waiting = "", ""
	var err error
	if s.notes.asked != "" {
		s.options, err = decodeOptions(s.notes.asked)
	}
	switch {
	case s.machine == nil || !s.machine.DeletionTimestamp.IsZero():
		// Cluster API drains the Node of a Machine that goes, and the Node goes with it.
		s.over = true
		return nil
	case err != nil:
		s.notes.problem = err.Error()
		return nil
	case s.notes.uncordon == s.notes.asked:
		err = r.end(ctx, s)
	case s.notes.done != s.notes.asked:
		err = r.begin(ctx, s)
	}
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		s.notes.problem = "the API of the cluster cannot be reached"
		return nil
	case noAnswer(err):
		// As it is while the server that the hub goes through restarts. It is asked again soon and not ever later, as after a failure.
		ctrl.LoggerFrom(ctx).V(1).Info("The cluster does not answer", "error", err.Error())
		s.notes.waiting, s.requeueAfter = "the API of the cluster does not answer", lookAgain
		return nil
	}
	return err
}

// noAnswer tells of an error that is no answer of the API, or says that there is none yet.
func noAnswer(err error) bool {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
	}
	return true
}

// begin cordons the Node, asks the hooks, and drains.
func (r *Reconciler) begin(ctx context.Context, s *scope) error {
	s.notes.done = ""
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}
	if s.options.Enabled && node != nil {
		if ready, err := r.cordon(ctx, s, node); err != nil || !ready {
			return err
		}
	}
	if len(s.options.PreDrainHooks) > 0 {
		s.notes.preDrain = s.notes.asked
		if s.waitForHooks("pre-drain", unanswered(s.secret, s.options.PreDrainHooks, s.notes.asked)) {
			return nil
		}
	}
	if s.options.Enabled && node != nil {
		if gone, err := r.drain(ctx, s, node); err != nil || !gone {
			return err
		}
	}
	s.notes.done = s.notes.asked
	return nil
}

// end asks the hooks and lets the Node take Pods again. Hooks that were never told of the drain are not told of its end.
func (r *Reconciler) end(ctx context.Context, s *scope) error {
	told := s.notes.preDrain != "" || s.notes.done != ""
	if len(s.options.PostDrainHooks) > 0 && told {
		s.notes.postDrain = s.notes.asked
		if s.waitForHooks("post-drain", unanswered(s.secret, s.options.PostDrainHooks, s.notes.asked)) {
			return nil
		}
	}
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}
	if node != nil && s.notes.cordoned && node.Spec.Unschedulable {
		if err := r.setUnschedulable(ctx, s, node, false); err != nil {
			return err
		}
	}
	s.over = true
	return nil
}

// waitForHooks notes which hooks have not answered. Their answer is an annotation of the plan Secret, which is watched.
func (s *scope) waitForHooks(which string, waiting []string) bool {
	if len(waiting) > 0 {
		s.notes.waiting = fmt.Sprintf("the %s hooks %s have not answered", which, list(waiting))
	}
	return len(waiting) > 0
}

// node finds the machine's Node; nil where the cluster has none. It is read past the cache: an old view of whether it takes Pods would leave
// it as it should not be.
func (r *Reconciler) node(ctx context.Context, s *scope) (*corev1.Node, error) {
	reader, err := r.ClusterCache.GetReader(ctx, s.cluster)
	if err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("reading the Nodes of the cluster: %w", err)
	}
	found := machinestate.NewNodes(nodes.Items).Of(s.machine)
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

// cordon keeps new Pods away. It is noted first, so that a hub that dies in between takes back what it did, and nothing that others did.
func (r *Reconciler) cordon(ctx context.Context, s *scope, node *corev1.Node) (bool, error) {
	switch {
	case node.Spec.Unschedulable:
		return true, nil
	case !s.notes.cordoned:
		s.notes.cordoned = true
		return false, nil
	}
	return true, r.setUnschedulable(ctx, s, node, true)
}

func (r *Reconciler) setUnschedulable(ctx context.Context, s *scope, node *corev1.Node, unschedulable bool) error {
	remote, err := r.ClusterCache.GetClient(ctx, s.cluster)
	if err != nil {
		return err
	}
	changed := node.DeepCopy()
	changed.Spec.Unschedulable = unschedulable
	if err := remote.Patch(ctx, changed, client.MergeFrom(node), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cordoning Node %s (unschedulable: %t): %w", node.Name, unschedulable, err)
	}
	ctrl.LoggerFrom(ctx).Info("Set whether a Node takes Pods", "Node", node.Name, "unschedulable", unschedulable)
	return nil
}
