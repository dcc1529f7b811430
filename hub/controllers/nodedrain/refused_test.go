package nodedrain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/controllers/clustercache"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRefusedNode: of a cluster that refuses to cordon the Node, or cannot, the drain says so, and goes on when it no longer does.
func TestRefusedNode(t *testing.T) {
	denied := apierrors.NewForbidden(corev1.Resource("nodes"), "node-a", errors.New("the policy of the cluster"))
	for name, tc := range map[string]struct {
		err              error
		problem, waiting string
	}{
		"refused": {err: denied, problem: "the policy of the cluster"},
		"broken":  {err: apierrors.NewInternalError(errors.New("failed calling webhook")), waiting: "failed calling webhook"},
	} {
		w := newWorld(t, pod("web", nil))
		failure := tc.err
		w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(w.remote.(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if failure != nil {
					return failure
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}), client.ObjectKey{Namespace: "fleet", Name: "c"})
		asked := w.ask(rkev1.DrainOptions{Enabled: true})
		w.pass()
		problem, waiting := w.annotations()[rkev1.DrainErrorAnnotation], w.annotations()[rkev1.DrainWaitingAnnotation]
		if (problem == "") != (tc.problem == "") || !strings.Contains(problem, tc.problem) || (waiting == "") != (tc.waiting == "") ||
			!strings.Contains(waiting, tc.waiting) {
			t.Errorf("%s: problem %q, waiting %q", name, problem, waiting)
		}
		failure = nil
		w.pass()
		w.says(rkev1.DrainDoneAnnotation, asked)
		w.says(rkev1.DrainErrorAnnotation, "")
		w.says(rkev1.DrainWaitingAnnotation, "")
	}
}

// TestLongRefusals: an API server that refuses evictions with long texts, another one for each Pod, does not fill the plan Secret.
func TestLongRefusals(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 20 {
		pods = append(pods, pod(fmt.Sprintf("web-%d", i), nil))
	}
	w := newWorld(t, pods...)
	w.r.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(w.remote.(client.WithWatch), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, object, _ client.Object,
			_ ...client.SubResourceCreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), object.GetName(), errors.New(strings.Repeat("x", 30<<10)))
		},
	}), client.ObjectKey{Namespace: "fleet", Name: "c"})
	w.ask(rkev1.DrainOptions{Enabled: true})
	w.pass()
	if text := w.annotations()[rkev1.DrainWaitingAnnotation]; len(text) > maxText || !strings.Contains(text, "cannot evict Pods") {
		t.Errorf("%d bytes say what the drain waits for: %.200s", len(text), text)
	}
}
