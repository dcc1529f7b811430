package nodedrain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/message"
)

// selection is what a drain does with the Pods of a Node.
type selection struct {
	evict []corev1.Pod
	// terminating are the names of Pods that are being deleted already.
	terminating []string
	// refused are the names of Pods that the options do not allow to be drained, by one of refusals.
	refused map[string][]string
}

// refusals keep Pods from being drained, and name the option that allows it. They are reported in this order.
var refusals = []string{refusedUnmanaged, refusedEmptyDir, refusedDaemonSet}

const (
	refusedDaemonSet = "belong to DaemonSets (set ignoreDaemonSets: true to leave them running)"
	refusedEmptyDir  = "have emptyDir volumes (set deleteEmptyDirData: true to drain them and lose that data)"
	refusedUnmanaged = "have no controller and will not be recreated (set force: true to drain them)"
)

// selectPods decides as kubectl drain does.
func selectPods(pods []corev1.Pod, options rkev1.DrainOptions, now time.Time) selection {
	s := selection{refused: map[string][]string{}}
	for i := range pods {
		pod := pods[i]
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			continue
		}
		switch refusal, ignore := refusalOf(pod, options); {
		case ignore:
		case !pod.DeletionTimestamp.IsZero():
			limit := seconds(options.SkipWaitForDeleteTimeoutSeconds)
			if limit <= 0 || now.Sub(pod.DeletionTimestamp.Time) <= limit {
				s.terminating = append(s.terminating, podName(pod))
			}
		case refusal == "":
			s.evict = append(s.evict, pod)
		default:
			s.refused[refusal] = append(s.refused[refusal], podName(pod))
		}
	}
	return s
}

// refusalOf says why a Pod is not drained, empty if it is, or that it is to be ignored.
func refusalOf(pod corev1.Pod, options rkev1.DrainOptions) (refusal string, ignore bool) {
	owner := metav1.GetControllerOf(&pod)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
	case owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, "apps/"):
		return refusedDaemonSet, ptr.Deref(options.IgnoreDaemonSets, true)
	case owner == nil && !options.Force:
		return refusedUnmanaged, false
	case !options.DeleteEmptyDirData && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }):
		return refusedEmptyDir, false
	}
	return "", false
}

func podName(pod corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// problem says which Pods were refused and why; empty if none was.
func (s selection) problem() string {
	var parts []string
	for _, refusal := range refusals {
		if pods := s.refused[refusal]; len(pods) > 0 {
			parts = append(parts, fmt.Sprintf("Pods %s %s", joinNames(pods), refusal))
		}
	}
	return strings.Join(parts, "; ")
}

// joinNames lists names in a fixed order.
func joinNames(names []string) string {
	return message.JoinNames(slices.Compact(slices.Sorted(slices.Values(names))), 5)
}
