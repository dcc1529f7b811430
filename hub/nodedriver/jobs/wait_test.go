package jobs

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestPendingPod: what a Pod has waited for is known when Kubernetes has deleted it, since its Job timed out.
func TestPendingPod(t *testing.T) {
	const events = "see kubectl -n cattle-system get events --field-selector involvedObject.name=one"
	pull := corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}
	for name, tt := range map[string]struct {
		status *corev1.PodStatus
		want   string
	}{
		"no Pod": {nil, events},
		"unschedulable": {&corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"},
		}}, "0/3 nodes are available"},
		"no image": {&corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "node-driver", State: corev1.ContainerState{Waiting: &pull}},
		}}, "container node-driver waits: ImagePullBackOff: no such image"},
		"running": {&corev1.PodStatus{Phase: corev1.PodRunning}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(scheme.Scheme)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "cattle-system", Name: "one-abcde",
				Labels: map[string]string{batchv1.JobNameLabel: "one"}}}
			if tt.status != nil {
				pod.Status = *tt.status
				builder = builder.WithObjects(pod)
			}
			r := &Runner{Options: Options{Namespace: "cattle-system"}, client: builder.Build()}
			pending, err := r.pending(t.Context(), job{name: "one"})
			if err != nil || pending != tt.want {
				t.Errorf("got %q, %v", pending, err)
			}
			if err := client.IgnoreNotFound(r.client.Delete(t.Context(), pod)); err != nil {
				t.Fatal(err)
			}
			ended := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed,
				Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, Message: "Job was active longer than specified deadline"}}}}
			want := tt.want
			if want == "" {
				want = "DeadlineExceeded: Job was active longer than specified deadline"
			}
			if got := r.explain(t.Context(), job{name: "one"}, ended, pending); !strings.HasSuffix(got, ": "+want) {
				t.Errorf("got %q", got)
			}
			ended.Status.Conditions[0].Reason = batchv1.JobReasonBackoffLimitExceeded
			if got := r.explain(t.Context(), job{name: "one"}, ended, pending); !strings.Contains(got, batchv1.JobReasonBackoffLimitExceeded) {
				t.Errorf("of a Pod that has failed: got %q", got)
			}
		})
	}
}
