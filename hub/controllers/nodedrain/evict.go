package nodedrain

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// evictionBudget is how long one reconcile may spend on evictions. The next one continues.
const evictionBudget = 15 * time.Second

// evictPods evicts all Pods that are to be drained, and reports whether none is left.
func (r *Reconciler) evictPods(ctx context.Context, s *scope, node *corev1.Node) (bool, error) {
	now := r.Now()
	if s.state.began.At.IsZero() {
		s.state.began = beginning{Options: s.state.requested, At: now.UTC().Truncate(time.Second)}
	}
	// Past the cache, which holds no Pods.
	remote, err := r.ClusterCache.GetUncachedClient(ctx, s.cluster)
	if err != nil {
		return false, err
	}
	var list corev1.PodList
	if err := remote.List(ctx, &list, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("listing the Pods of Node %s: %w", node.Name, err)
	}
	pods := selectPods(list.Items, s.options, now)
	if problem := pods.problem(); problem != "" && !s.options.IgnoreErrors {
		s.state.problem, s.requeueAfter = problem, pollIntervalStuck
		return false, nil
	}
	remaining := evictAll(ctx, remote, pods, s.options)
	timedOut := now.Sub(s.state.began.At) >= timeout(s.options)
	switch {
	case remaining == "" || timedOut && s.options.IgnoreErrors:
		return true, nil
	case timedOut:
		s.state.problem, s.requeueAfter = fmt.Sprintf("drain did not finish within %v; retrying: %s", timeout(s.options),
			remaining), pollIntervalStuck
	default:
		s.state.waiting, s.requeueAfter = remaining, pollInterval
	}
	return false, nil
}

// evictAll evicts Pods, and says which remain and why; empty for none.
func evictAll(ctx context.Context, remote client.Client, pods selection, options rkev1.DrainOptions) string {
	ctx, cancel := context.WithTimeout(ctx, evictionBudget)
	defer cancel()
	terminating := pods.terminating
	refused := map[string][]string{}
	var reasons []string
	for i := range pods.evict {
		pod := &pods.evict[i]
		err := evict(ctx, remote, pod, options)
		switch {
		case apierrors.IsNotFound(err):
		case ctx.Err() != nil:
			return "more Pods than could be evicted at once"
		case err == nil || apierrors.IsConflict(err):
			terminating = append(terminating, podName(*pod))
		default:
			reason := err.Error()
			// For a disruption budget, the API server names it and its numbers.
			if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found && cause.Message != "" {
				reason = cause.Message
			}
			if refused[reason] == nil {
				reasons = append(reasons, reason)
			}
			refused[reason] = append(refused[reason], podName(*pod))
		}
	}
	var parts []string
	for _, reason := range reasons {
		parts = append(parts, fmt.Sprintf("cannot evict Pods %s: %s", joinNames(refused[reason]), reason))
	}
	if len(terminating) > 0 {
		parts = append(parts, "Pods "+joinNames(terminating)+" are terminating")
	}
	return strings.Join(parts, "; ")
}

func evict(ctx context.Context, remote client.Client, pod *corev1.Pod, options rkev1.DrainOptions) error {
	// The UID keeps another Pod of the same name, such as one of a StatefulSet, from being evicted.
	how := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if options.GracePeriod > 0 {
		how.GracePeriodSeconds = new(int64(options.GracePeriod))
	}
	if options.DisableEviction {
		return remote.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: how.GracePeriodSeconds, Preconditions: how.Preconditions})
	}
	return remote.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &how,
	})
}
