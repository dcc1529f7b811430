package capi

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestNodesByIndex: a Node is found by the index, which the caches have, and the Machine controller gets no list of all Nodes.
func TestNodesByIndex(t *testing.T) {
	hasField := func(i clustercache.CacheOptionsIndex) bool { return i.Field == clustercache.NodeProviderIDIndex.Field }
	if !slices.ContainsFunc(setup.ClusterCacheCacheOptions().Indexes, hasField) {
		t.Fatal("caches have no index of provider IDs, so that all Nodes have to be looked at")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "k3s://n"}}
	remote := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme)).WithObjects(node).
		WithIndex(&corev1.Node{}, clustercache.NodeProviderIDIndex.Field, clustercache.NodeProviderIDIndex.ExtractValue).Build()
	key := client.ObjectKey{Namespace: "fleet", Name: "c"}
	c, err := nodesByIndex{clustercache.NewFakeClusterCache(remote, key)}.GetClient(t.Context(), key)
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
	if _, err := (nodesByIndex{clustercache.NewFakeClusterCache(remote, key)}).GetClient(t.Context(), client.ObjectKey{}); err == nil {
		t.Error("a cluster without a connection has a client")
	}
}
