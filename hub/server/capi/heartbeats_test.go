package capi

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// nodeWatcher watches Nodes and counts the updates.
type nodeWatcher struct {
	clustercache.Watcher
	t       *testing.T
	updates int
}

func (w *nodeWatcher) Watch(of cache.Cache) error {
	informer, err := of.GetInformer(w.t.Context(), &corev1.Node{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandlerWithOptions(
		toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { w.updates++ }}, toolscache.HandlerOptions{})
	return err
}

// connectedCluster is the ClusterCache of one cluster.
type connectedCluster struct {
	clustercache.ClusterCache
	cache cache.Cache
}

func (c connectedCluster) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	return watcher.Watch(c.cache)
}

// TestWithoutHeartbeats: that a kubelet is alive is no event, and all else that it writes is one.
func TestWithoutHeartbeats(t *testing.T) {
	informers := &informertest.FakeInformers{Scheme: fakeclient.Scheme(t, corev1.AddToScheme)}
	watcher := &nodeWatcher{t: t}
	connected := quietNodes{connectedCluster{cache: informers}}
	if err := connected.Watch(t.Context(), client.ObjectKey{}, watcher); err != nil {
		t.Fatal(err)
	}
	informer, err := informers.FakeInformerFor(t.Context(), &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "k3s"}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
		}},
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   int
	}{
		"heartbeat": {func(n *corev1.Node) {}, 0},
		"not ready": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, 1},
		"label":     {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, 1},
		"version":   {func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1" }, 1},
		"taint":     {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a"}} }, 1},
	} {
		after := node.DeepCopy()
		after.ResourceVersion, after.ManagedFields = "2", nil
		after.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(5 * time.Minute))
		tc.change(after)
		watcher.updates = 0
		informer.Update(node, after)
		if watcher.updates != tc.want {
			t.Errorf("%s: %d events, want %d", name, watcher.updates, tc.want)
		}
	}
	if node.Status.Conditions[0].LastHeartbeatTime != now || node.ResourceVersion != "1" {
		t.Errorf("the Node of the cache was changed: %v", node)
	}
}
