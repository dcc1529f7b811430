package capi

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventHandlers has the controllers that watch the same kind of a cluster share one event handler of its informer: each has two goroutines
// and room for a thousand events, 25 KiB, and several controllers watch the Nodes of every cluster.
type eventHandlers struct {
	mu sync.Mutex
	of map[toolscache.SharedIndexInformer]*sharedHandler
}

// clusterHandlers are those of one cluster. exceeded is called when its objects exceed maxRetained.
type clusterHandlers struct {
	*eventHandlers
	exceeded func()
}

// watcher returns one whose event handlers are shared.
func (h *eventHandlers) watcher(w clustercache.Watcher, exceeded func()) clustercache.Watcher {
	return sharingWatcher{w, clusterHandlers{h, exceeded}}
}

// add adds a handler to those of an informer.
func (h clusterHandlers) add(
	informer toolscache.SharedIndexInformer, handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	shared, err := h.shared(informer, opts)
	if err != nil {
		return nil, err
	}
	shared.add(handler)
	return shared.registration, nil
}

func (h clusterHandlers) shared(informer toolscache.SharedIndexInformer, opts toolscache.HandlerOptions) (*sharedHandler, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if shared, ok := h.of[informer]; ok {
		return shared, nil
	}
	for other := range h.of {
		if other.IsStopped() { // the connection to its cluster was lost
			delete(h.of, other)
		}
	}
	shared := &sharedHandler{store: informer.GetStore(), exceeded: h.exceeded}
	registration, err := informer.AddEventHandlerWithOptions(shared, opts)
	if err != nil {
		return nil, fmt.Errorf("adding an event handler: %w", err)
	}
	shared.registration = registration
	if h.of == nil {
		h.of = map[toolscache.SharedIndexInformer]*sharedHandler{}
	}
	h.of[informer] = shared
	return shared, nil
}

// sharedHandler passes the events of an informer on to all its handlers.
type sharedHandler struct {
	store        toolscache.Store
	registration toolscache.ResourceEventHandlerRegistration
	exceeded     func()

	mu       sync.Mutex
	handlers []toolscache.ResourceEventHandler
	// retained is what the objects of the informer cost.
	retained int
}

// add adds a handler, which gets what exists as if it had just been created. Of what changes at this moment it may get the creation twice,
// or the deletion only: a controller reads what there is.
func (s *sharedHandler) add(handler toolscache.ResourceEventHandler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.store.List() {
		handler.OnAdd(object, true)
	}
	s.handlers = append(s.handlers, handler)
}

func (s *sharedHandler) each(call func(toolscache.ResourceEventHandler)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, handler := range s.handlers {
		call(handler)
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (s *sharedHandler) OnAdd(object any, initial bool) {
	s.retain(retainedCost(object))
	s.each(func(h toolscache.ResourceEventHandler) { h.OnAdd(object, initial) })
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (s *sharedHandler) OnUpdate(before, after any) {
	s.retain(retainedCost(after) - retainedCost(before))
	s.each(func(h toolscache.ResourceEventHandler) { h.OnUpdate(before, after) })
}

// OnDelete implements toolscache.ResourceEventHandler.
func (s *sharedHandler) OnDelete(object any) {
	s.retain(-retainedCost(object))
	s.each(func(h toolscache.ResourceEventHandler) { h.OnDelete(object) })
}

type sharingWatcher struct {
	clustercache.Watcher
	handlers clusterHandlers
}

// Watch implements clustercache.Watcher.
func (w sharingWatcher) Watch(of cache.Cache) error {
	return w.Watcher.Watch(sharingCache{of, w.handlers})
}

type sharingCache struct {
	cache.Cache
	handlers clusterHandlers
}

// GetInformer implements cache.Informers.
func (c sharingCache) GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := sharedInformer(ctx, c.Cache, object, opts...)
	if err != nil {
		return nil, err
	}
	return sharingInformer{informer, c.handlers}, nil
}

type sharingInformer struct {
	toolscache.SharedIndexInformer
	handlers clusterHandlers
}

// AddEventHandlerWithOptions implements cache.Informer, for sources of controller-runtime, which use no other way and remove none.
func (i sharingInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.handlers.add(i.SharedIndexInformer, handler, opts)
}
