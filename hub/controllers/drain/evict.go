package drain

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// passTime is how long one pass may spend on evictions. What it does not get to, the next one does.
const passTime = 15 * time.Second

// drain asks every Pod to go that is to go, and tells whether none is left.
func (r *Reconciler) drain(ctx context.Context, s *scope, node *corev1.Node) (bool, error) {
	now := r.Now()
	if s.notes.began.At.IsZero() {
		s.notes.began = beginning{Options: s.notes.asked, At: now.UTC().Truncate(time.Second)}
	}
	// Past the cache: it holds no Pods, and an old view would take a drain for done.
	remote, err := r.ClusterCache.GetUncachedClient(ctx, s.cluster)
	if err != nil {
		return false, err
	}
	var pods corev1.PodList
	if err := remote.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("reading the Pods of Node %s: %w", node.Name, err)
	}
	chosen := choose(pods.Items, s.options, now)
	if problem := chosen.problem(); problem != "" && !s.options.IgnoreErrors {
		s.notes.problem, s.requeueAfter = problem, lookAgainLate
		return false, nil
	}
	left := evictAll(ctx, remote, chosen, s.options)
	late := now.Sub(s.notes.began.At) >= timeout(s.options)
	switch {
	case left == "" || late && s.options.IgnoreErrors:
		return true, nil
	case late:
		s.notes.problem, s.requeueAfter = fmt.Sprintf("it is not done within %v and goes on: %s", timeout(s.options), left), lookAgainLate
	default:
		s.notes.waiting, s.requeueAfter = left, lookAgain
	}
	return false, nil
}

// evictAll evicts, and says which Pods are left and what keeps them; empty for none.
func evictAll(ctx context.Context, remote client.Client, chosen choice, options rkev1.DrainOptions) string {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	leaving := chosen.leaving
	kept := map[string][]string{}
	var order []string
	for i := range chosen.evict {
		pod := &chosen.evict[i]
		err := evict(ctx, remote, pod, options)
		switch why := inTheWay(err); {
		case apierrors.IsNotFound(err):
		case ctx.Err() != nil:
			return "there are more Pods than can be asked to go at once"
		case err == nil || apierrors.IsConflict(err):
			leaving = append(leaving, podName(*pod))
		default:
			if kept[why] == nil {
				order = append(order, why)
			}
			kept[why] = append(kept[why], podName(*pod))
		}
	}
	var parts []string
	for _, why := range order {
		parts = append(parts, fmt.Sprintf("Pods %s stay: %s", list(kept[why]), why))
	}
	if len(leaving) > 0 {
		parts = append(parts, "Pods "+list(leaving)+" are being deleted")
	}
	return strings.Join(parts, "; ")
}

func evict(ctx context.Context, remote client.Client, pod *corev1.Pod, options rkev1.DrainOptions) error {
	// The Pod that was chosen, and not one that has taken its name since.
	how := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	if options.GracePeriod > 0 {
		how.GracePeriodSeconds = ptr.To(int64(options.GracePeriod))
	}
	if options.DisableEviction {
		return remote.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: how.GracePeriodSeconds, Preconditions: how.Preconditions})
	}
	return remote.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &how,
	})
}

// inTheWay says why a Pod was not evicted. For a disruption budget, the API server names it and its numbers.
func inTheWay(err error) string {
	if err == nil {
		return ""
	}
	if cause, found := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); found && cause.Message != "" {
		return cause.Message
	}
	return err.Error()
}
