package nodedrain

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// pod is one of a ReplicaSet, changed.
func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: ptr.To(true)},
		}},
		Spec: corev1.PodSpec{NodeName: "node-a"},
	}
	if change != nil {
		change(p)
	}
	return p
}

func alone(p *corev1.Pod)  { p.OwnerReferences = nil }
func daemon(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
func scratch(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

// TestTimeout: a number of seconds that is no duration is the longest one, and not in the past.
func TestTimeout(t *testing.T) {
	for given, want := range map[int]time.Duration{
		0: defaultTimeout, -5: defaultTimeout, 90: 90 * time.Second, 9999999999: math.MaxInt64 / time.Second * time.Second,
		math.MaxInt64: math.MaxInt64 / time.Second * time.Second,
	} {
		if got := timeout(rkev1.DrainOptions{Timeout: given}); got != want {
			t.Errorf("%d: got %s, want %s", given, got, want)
		}
	}
	for given, want := range map[int]time.Duration{0: 0, -9999999999: 0, 30: 30 * time.Second} {
		if got := seconds(given); got != want {
			t.Errorf("%d: got %s, want %s", given, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	now := time.Unix(1000, 0)
	going := func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(-time.Minute))) }
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		options rkev1.DrainOptions
		evicted bool
		leaving bool
		problem string
	}{
		{name: "of a ReplicaSet", pod: pod("a", nil), evicted: true},
		{name: "of a DaemonSet", pod: pod("a", daemon)},
		{name: "of a DaemonSet, on its way", pod: pod("a", func(p *corev1.Pod) { daemon(p); going(p) })},
		{
			name: "of a DaemonSet that is not to be ignored", pod: pod("a", daemon), options: rkev1.DrainOptions{IgnoreDaemonSets: ptr.To(false)},
			problem: "Pods default/a belong to DaemonSets (set ignoreDaemonSets: true to leave them running)",
		},
		{name: "of the kubelet", pod: pod("a", func(p *corev1.Pod) {
			alone(p)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		})},
		{
			name: "of nobody", pod: pod("a", alone),
			problem: "Pods default/a have no controller and will not be recreated (set force: true to drain them)",
		},
		{name: "of nobody, by force", pod: pod("a", alone), options: rkev1.DrainOptions{Force: true}, evicted: true},
		{name: "of nobody, done", pod: pod("a", func(p *corev1.Pod) { alone(p); p.Status.Phase = corev1.PodSucceeded }), evicted: true},
		{
			name: "with data", pod: pod("a", scratch),
			problem: "Pods default/a have emptyDir volumes (set deleteEmptyDirData: true to drain them and lose that data)",
		},
		{name: "with data that may go", pod: pod("a", scratch), options: rkev1.DrainOptions{DeleteEmptyDirData: true}, evicted: true},
		{name: "on its way", pod: pod("a", going), leaving: true},
		{name: "on its way for too long", pod: pod("a", going), options: rkev1.DrainOptions{SkipWaitForDeleteTimeoutSeconds: 30}},
		{name: "on its way, not for too long yet", pod: pod("a", going), options: rkev1.DrainOptions{SkipWaitForDeleteTimeoutSeconds: 90},
			leaving: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := selectPods([]corev1.Pod{*tc.pod}, tc.options, now)
			if len(c.evict) > 0 != tc.evicted || len(c.terminating) > 0 != tc.leaving {
				t.Errorf("evicted %v, leaving %v", c.evict, c.terminating)
			}
			if diff := cmp.Diff(tc.problem, c.problem()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJoinNames(t *testing.T) {
	if got, want := joinNames([]string{"b", "a", "b", "f", "e", "d", "c"}), "a, b, c, d, e and 1 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
