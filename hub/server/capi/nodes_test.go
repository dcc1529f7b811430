package capi

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodesByIndex: a Node is found by the index, which the caches have, and the Machine controller gets no list of all Nodes.
func TestNodesByIndex(t *testing.T) {
	hasField := func(i clustercache.CacheOptionsIndex) bool { return i.Field == clustercache.NodeProviderIDIndex.Field }
	if !slices.ContainsFunc(cacheOptions().Indexes, hasField) {
		t.Fatal("caches have no index of provider IDs, so that all Nodes have to be looked at")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "k3s://n"}}
	remote := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(node).
		WithIndex(&corev1.Node{}, clustercache.NodeProviderIDIndex.Field, clustercache.NodeProviderIDIndex.ExtractValue).Build()
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	c, err := machineNodes{clustercache.NewFakeClusterCache(remote, key)}.GetClient(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		opts []client.ListOption
		want int
	}{
		"by the index": {[]client.ListOption{client.MatchingFields{clustercache.NodeProviderIDIndex.Field: "k3s://n"}}, 1},
		"all":          {nil, 0},
	} {
		nodes := &corev1.NodeList{Items: []corev1.Node{{}, {}}}
		if err := c.List(t.Context(), nodes, tc.opts...); err != nil || len(nodes.Items) != tc.want {
			t.Errorf("%s: %d Nodes, %v", name, len(nodes.Items), err)
		}
	}
	if _, err := (machineNodes{clustercache.NewFakeClusterCache(remote, key)}).GetClient(t.Context(), client.ObjectKey{}); err == nil {
		t.Error("a cluster without a connection has a client")
	}
}

// TestNodePatches: of the patches that the Machine controller makes in each reconcile of a Machine without a controlling owner, those that
// change something are sent.
func TestNodePatches(t *testing.T) {
	sent := 0
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	remote := interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(node).Build(), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				sent++
				return c.Patch(ctx, o, patch, opts...)
			},
		})
	for _, tt := range []struct {
		label string
		sent  int
	}{{"", 0}, {"a", 1}, {"a", 1}, {"b", 2}} {
		if err := remote.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			t.Fatal(err)
		}
		changed := node.DeepCopy()
		if tt.label != "" {
			changed.Labels = map[string]string{"example.com/label": tt.label}
		}
		patch := client.StrategicMergeFrom(node, client.MergeFromWithOptimisticLock{}) // as upstream's
		if err := (nodesClient{remote}).Patch(t.Context(), changed, patch); err != nil {
			t.Fatal(err)
		}
		if sent != tt.sent {
			t.Errorf("label %q: %d patches were sent, want %d", tt.label, sent, tt.sent)
		}
	}
	if err := remote.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Labels["example.com/label"] != "b" {
		t.Errorf("got %v, %v", node.Labels, err)
	}
}

// TestNodesInCaches: the caches of clusters hold no images of Nodes, no resources and no managed fields, and all else.
func TestNodesInCaches(t *testing.T) {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "k3s"}}},
		Status: corev1.NodeStatus{
			Images:      []corev1.ContainerImage{{Names: []string{"rancher/mirrored-pause:3.6"}}},
			Capacity:    resources,
			Allocatable: resources,
			NodeInfo:    corev1.NodeSystemInfo{KubeletVersion: "v1.36.3+k3s1"},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady}},
		},
	}
	want := node.DeepCopy()
	want.ManagedFields, want.Status.Images, want.Status.Capacity, want.Status.Allocatable = nil, nil, nil, nil
	if _, err := cacheOptions().DefaultTransform(node); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, node); diff != "" {
		t.Error(diff)
	}
}

// TestNodeTexts: what a kubelet reports, as long as the API server of its cluster allows, is kept in part only.
func TestNodeTexts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	node := &corev1.Node{Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{KernelVersion: long, KubeletVersion: "v1.36.3+k3s1"},
		Addresses:  slices.Repeat([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: long}}, 1000),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Reason: long, Message: long}},
	}}
	kept, err := cacheOptions().DefaultTransform(node)
	if err != nil {
		t.Fatal(err)
	}
	if size := kept.(*corev1.Node).Size(); size > 32<<10 {
		t.Errorf("%d bytes of the Node are kept", size)
	}
	if got := kept.(*corev1.Node).Status.NodeInfo.KubeletVersion; got != "v1.36.3+k3s1" {
		t.Errorf("the version has become %q", got)
	}
}

// TestNodeEntries: of lists and maps that are longer than those of any Node, no more is kept, and not the memory of the rest.
func TestNodeEntries(t *testing.T) {
	const many = 100_000
	labels := map[string]string{}
	for i := range many {
		labels[strconv.Itoa(i)] = ""
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"a": "b"}, Finalizers: make([]string, many)},
		Spec:       corev1.NodeSpec{Taints: make([]corev1.Taint, many)},
		Status: corev1.NodeStatus{Conditions: make([]corev1.NodeCondition, many), VolumesInUse: make([]corev1.UniqueVolumeName, many),
			Addresses: make([]corev1.NodeAddress, many)},
	}
	if _, err := cacheOptions().DefaultTransform(node); err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]int{"labels": len(node.Labels), "finalizers": cap(node.Finalizers), "taints": cap(node.Spec.Taints),
		"conditions": cap(node.Status.Conditions), "volumes": cap(node.Status.VolumesInUse), "addresses": cap(node.Status.Addresses)} {
		if kept > 2*maxNodeEntries {
			t.Errorf("room for %d %s is kept", kept, name)
		}
	}
	if node.Annotations["a"] != "b" {
		t.Error("an annotation is not kept")
	}
}
