package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// podInterval is the pause between looks at Pods: the hub may list them, and not watch them.
	podInterval = 2 * time.Second
	// pendingInterval is the pause between looks at a Pod that has not started.
	pendingInterval = time.Minute
)

// wait waits for the end of a Job; nil if it was deleted. Meanwhile it saves what the Job writes of the state. pending is what its Pod
// waited for if that did not start, and empty otherwise.
func (r *Runner) wait(ctx context.Context, j job, save func([]byte) error) (ended *batchv1.Job, pending string, err error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var watchers sync.WaitGroup
	if save != nil {
		watchers.Go(func() { r.watchState(watching, j, save) })
	}
	watchers.Go(func() { pending = r.watchPending(watching, j) })
	ended, err = r.waitJob(ctx, j, func(job *batchv1.Job) bool {
		for _, c := range job.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				return true
			}
		}
		return false
	})
	cancel()
	watchers.Wait()
	return ended, pending, err
}

// watchPending returns what the Pod of a Job waits for when ctx ends; empty if it has started. When a Job times out, Kubernetes deletes its
// Pod before it says that the Job has failed.
func (r *Runner) watchPending(ctx context.Context, j job) (pending string) {
	_ = wait.PollUntilContextCancel(ctx, pendingInterval, false, func(ctx context.Context) (bool, error) {
		now, err := r.pending(ctx, j)
		if err != nil {
			return false, nil //nolint:nilerr // it is listed again
		}
		if now != "" && pending == "" {
			ctrl.LoggerFrom(ctx).Info("The Pod of a Job has not started", "Job", j.name, "reason", now)
		}
		pending = now
		return now == "", nil
	})
	return pending
}

// pending returns what the Pod of a Job waits for before it starts; empty if it has started.
func (r *Runner) pending(ctx context.Context, j job) (string, error) {
	pods := &corev1.PodList{}
	err := r.client.List(ctx, pods, client.InNamespace(r.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.name})
	if err != nil {
		return "", err
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase != corev1.PodPending {
			return "", nil
		}
	}
	for i := range pods.Items {
		if why := explainPod(&pods.Items[i]); why != "" {
			return why, nil
		}
	}
	return fmt.Sprintf("see kubectl -n %s get events --field-selector involvedObject.name=%s", r.Namespace, j.name), nil
}

func (r *Runner) waitGone(ctx context.Context, j job) error {
	_, err := r.waitJob(ctx, j, func(*batchv1.Job) bool { return false })
	return err
}

// waitPodsGone waits until no Pod of a Job runs any more. Those of a Job that somebody has deleted may outlive it for a while.
func (r *Runner) waitPodsGone(ctx context.Context, j job) error {
	err := wait.PollUntilContextCancel(ctx, podInterval, true, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := r.client.List(ctx, pods, client.InNamespace(r.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.name})
		if meta.IsNoMatchError(err) {
			return true, nil // an API server without nodes has no such kind
		}
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool {
			return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
		}), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the Pods of Job %s to end: %w", j.name, err)
	}
	return nil
}

// waitJob waits until is is true of a Job, or the Job is gone: then it returns nil.
func (r *Runner) waitJob(ctx context.Context, j job, is func(*batchv1.Job) bool) (*batchv1.Job, error) {
	event, err := watchtools.UntilWithSync(ctx, r.only(j.name, &batchv1.JobList{}), &batchv1.Job{},
		func(store cache.Store) (bool, error) { return len(store.List()) == 0, nil },
		func(event watch.Event) (bool, error) {
			job, ok := event.Object.(*batchv1.Job)
			return event.Type == watch.Deleted || ok && is(job), nil
		})
	if err != nil {
		return nil, fmt.Errorf("waiting for Job %s: %w", j.name, err)
	}
	if event == nil || event.Type == watch.Deleted {
		return nil, nil //nolint:nilnil
	}
	return event.Object.(*batchv1.Job), nil
}

// watchState saves the state whenever the Job writes it, until ctx ends. What cannot be saved now is saved at the end of the Job.
func (r *Runner) watchState(ctx context.Context, j job, save func([]byte) error) {
	_, _ = watchtools.UntilWithSync(ctx, r.only(j.name, &corev1.SecretList{}), &corev1.Secret{}, nil,
		func(event watch.Event) (bool, error) {
			if secret, ok := event.Object.(*corev1.Secret); ok && len(secret.Data[stateKey]) > 0 {
				if err := save(secret.Data[stateKey]); err != nil {
					ctrl.LoggerFrom(ctx).Error(err, "Saving the state of the machine failed", "Job", j.name)
				}
			}
			return false, nil
		})
}

// only lists and watches the object of a name.
func (r *Runner) only(name string, list client.ObjectList) cache.ListerWatcher {
	options := func(raw metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: r.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", name), Raw: &raw}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := list.DeepCopyObject().(client.ObjectList)
			return out, r.client.List(ctx, out, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.client.Watch(ctx, list.DeepCopyObject().(client.ObjectList), options(o))
		},
	}
}

// explain says why a Job has written no result: what its Pod waited for until the Job timed out, what its container has ended with, or its
// condition.
func (r *Runner) explain(ctx context.Context, j job, ended *batchv1.Job, pending string) string {
	if pending != "" && failedWith(ended) == batchv1.JobReasonDeadlineExceeded {
		return fmt.Sprintf("Job %s has written no result: its Pod did not start in time: %s", j.name, pending)
	}
	pods := &corev1.PodList{}
	selector := client.MatchingLabels{batchv1.JobNameLabel: j.name}
	if err := r.client.List(ctx, pods, client.InNamespace(r.Namespace), selector); err == nil {
		for i := range pods.Items {
			if why := explainPod(&pods.Items[i]); why != "" {
				return fmt.Sprintf("Job %s has written no result: %s", j.name, why)
			}
		}
	}
	if ended == nil {
		return fmt.Sprintf("Job %s was deleted before it ended", j.name)
	}
	for _, c := range ended.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("Job %s has written no result: %s: %s", j.name, c.Reason, c.Message)
		}
	}
	return fmt.Sprintf("Job %s has written no result", j.name)
}

// failedWith is the reason for which a Job has failed; empty for none.
func failedWith(ended *batchv1.Job) string {
	if ended == nil {
		return ""
	}
	for _, c := range ended.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

func explainPod(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Terminated != nil:
			t := c.State.Terminated
			return fmt.Sprintf("container %s has ended with exit code %d (%s): %s", c.Name, t.ExitCode, t.Reason, t.Message)
		case c.State.Waiting != nil:
			return fmt.Sprintf("container %s waits: %s: %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	return pod.Status.Message
}
