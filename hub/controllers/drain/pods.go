package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// choice is what a drain does with the Pods of a Node.
type choice struct {
	// evict are to go.
	evict []corev1.Pod
	// leaving are on their way, by name.
	leaving []string
	// refused are Pods that the options do not allow to be drained, by what would have to be set.
	refused map[string][]string
}

// The options that keep Pods from being drained, and what to write so that they are.
const (
	refusedDaemonSet = "belong to DaemonSets (ignoreDaemonSets: true leaves them where they are)"
	refusedEmptyDir  = "have emptyDir volumes (deleteEmptyDirData: true drains them, and their data is lost)"
	refusedUnmanaged = "are managed by no controller (force: true drains them, and nobody makes them again)"
)

// choose sorts the Pods of a Node as kubectl drain does.
func choose(pods []corev1.Pod, options rkev1.DrainOptions, now time.Time) choice {
	c := choice{refused: map[string][]string{}}
	for i := range pods {
		pod := pods[i]
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue
		}
		switch why := refuses(pod, options); {
		case why == leftAlone:
		case !pod.DeletionTimestamp.IsZero():
			if !givenUp(pod, options, now) {
				c.leaving = append(c.leaving, podName(pod))
			}
		case why == "":
			c.evict = append(c.evict, pod)
		default:
			c.refused[why] = append(c.refused[why], podName(pod))
		}
	}
	return c
}

// leftAlone is a Pod that a drain has nothing to do with.
const leftAlone = "left alone"

// refuses says why a Pod is not drained; empty if it is.
func refuses(pod corev1.Pod, options rkev1.DrainOptions) string {
	owner := metav1.GetControllerOf(&pod)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "" // nothing is lost by it
	}
	switch {
	case owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
		if ptr.Deref(options.IgnoreDaemonSets, true) {
			return leftAlone
		}
		return refusedDaemonSet
	case owner == nil && !options.Force:
		return refusedUnmanaged
	case !options.DeleteEmptyDirData && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }):
		return refusedEmptyDir
	}
	return ""
}

// givenUp tells whether a Pod is being deleted for longer than the options wait for.
func givenUp(pod corev1.Pod, options rkev1.DrainOptions, now time.Time) bool {
	limit := time.Duration(options.SkipWaitForDeleteTimeoutSeconds) * time.Second
	return limit > 0 && now.Sub(pod.DeletionTimestamp.Time) > limit
}

func podName(pod corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// problem says why Pods were refused; empty if none was.
func (c choice) problem() string {
	var parts []string
	for _, why := range []string{refusedUnmanaged, refusedEmptyDir, refusedDaemonSet} {
		if pods := c.refused[why]; len(pods) > 0 {
			parts = append(parts, fmt.Sprintf("Pods %s %s", list(pods), why))
		}
	}
	return strings.Join(parts, "; ")
}

// list names at most five things, always in the same order.
func list(names []string) string {
	const most = 5
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
