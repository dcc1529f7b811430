package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/testenv/wait"
)

// nodesCache is the cache of a cluster, with an informer of Nodes that counts its event handlers.
type nodesCache struct {
	cache.Cache
	toolscache.SharedIndexInformer
	handlers int
}

func (c *nodesCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c, nil
}

func (c *nodesCache) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	c.handlers++
	return c.SharedIndexInformer.AddEventHandlerWithOptions(h, opts)
}

func newNodesCache(source *fcache.FakeControllerSource) *nodesCache {
	return &nodesCache{SharedIndexInformer: toolscache.NewSharedIndexInformer(source, &corev1.Node{}, 0, toolscache.Indexers{})}
}

// nodeEvents is a controller that watches Nodes.
type nodeEvents struct {
	clustercache.Watcher
	ctx    context.Context
	mu     sync.Mutex
	events []string
}

func (e *nodeEvents) Watch(of cache.Cache) error {
	informer, err := of.GetInformer(e.ctx, &corev1.Node{})
	if err != nil {
		return err
	}
	got := func(event string, object any) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.events = append(e.events, event+" "+object.(*corev1.Node).Name)
	}
	_, err = informer.AddEventHandlerWithOptions(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, _ bool) { got("add", object) },
		UpdateFunc: func(_, after any) { got("update", after) },
		DeleteFunc: func(object any) { got("delete", object) },
	}, toolscache.HandlerOptions{})
	return err
}

// wait waits until the controller has had these events, in any order, and no others.
func (e *nodeEvents) wait(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	wait.Until(t, 10*time.Second, fmt.Sprintf("the events %q", want), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Equal(slices.Sorted(slices.Values(e.events)), want)
	})
}

// TestSharedHandlers: of all controllers that watch the Nodes of a cluster the informer has one event handler, and each gets all events,
// those that exist when it begins to watch included. A cluster that is connected again has an informer of its own.
func TestSharedHandlers(t *testing.T) {
	ctx, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	source.Add(node("a"))
	nodes := newNodesCache(source)
	connections := &Connections{ClusterCache: connectedCluster{cache: nodes}}
	watch := func() *nodeEvents {
		t.Helper()
		controller := &nodeEvents{ctx: ctx}
		if err := connections.Watch(ctx, client.ObjectKey{}, controller); err != nil {
			t.Fatal(err)
		}
		return controller
	}
	first := watch()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nodes.RunWithContext(ctx)
	}()
	first.wait(t, "add a")
	source.Add(node("b"))
	first.wait(t, "add a", "add b")
	second := watch()
	second.wait(t, "add a", "add b")
	source.Modify(node("a"))
	source.Delete(node("b"))
	first.wait(t, "add a", "add b", "update a", "delete b")
	second.wait(t, "add a", "add b", "update a", "delete b")
	if nodes.handlers != 1 {
		t.Errorf("the informer has %d event handlers, want 1", nodes.handlers)
	}

	disconnect()
	<-ended
	again := newNodesCache(source)
	connections.ClusterCache = connectedCluster{cache: again}
	watch()
	if known := len(connections.handlers.of); again.handlers != 1 || known != 1 {
		t.Errorf("the informer of the new connection has %d event handlers, and %d informers are known; want 1 of each", again.handlers, known)
	}
}

// TestRetained: the hub disconnects from a cluster when it has more objects than a real one, once for each time.
func TestRetained(t *testing.T) {
	times := 0
	s := &sharedHandler{exceeded: func() { times++ }}
	node := func(size int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": strings.Repeat("x", size)}}}
	}
	half := node(maxRetained / 2)
	for i, tt := range []struct {
		happens func()
		times   int
	}{
		{func() { s.OnAdd(half, true) }, 0},
		{func() { s.OnAdd(half, false) }, 1},
		{func() { s.OnAdd(half, false) }, 1},
		{func() { s.OnDelete(half) }, 1},
		{func() { s.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: half}) }, 1},
		{func() { s.OnUpdate(half, node(0)) }, 1},
		{func() { s.OnUpdate(node(0), node(maxRetained)) }, 2},
	} {
		tt.happens()
		if times != tt.times {
			t.Errorf("event %d: the cluster was disconnected %d times, want %d", i, times, tt.times)
		}
	}
	s = &sharedHandler{exceeded: func() { t.Error("a cluster with 10,000 Nodes is disconnected") }}
	for range 10_000 {
		s.OnAdd(node(5_000), true)
	}
}

// TestMeasure: the Nodes of a cluster are counted although no controller watches them.
func TestMeasure(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	nodes := newNodesCache(source)
	connections := &Connections{ClusterCache: connectedCluster{cache: nodes}}
	connections.measure(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "demo"})
	if nodes.handlers != 1 {
		t.Errorf("the informer has %d event handlers, want 1", nodes.handlers)
	}
}
