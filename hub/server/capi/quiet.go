package capi

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quietCache is a cache for sources of controller-runtime. They get no events of updates that say nothing to their controller.
type quietCache struct {
	cache.Cache
	saysNothing func(before, after client.Object) bool
}

// GetInformer implements cache.Informers.
func (c quietCache) GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, object, opts...)
	if err != nil {
		return nil, err
	}
	return quietInformer{informer, c.saysNothing}, nil
}

type quietInformer struct {
	cache.Informer
	saysNothing func(before, after client.Object) bool
}

// AddEventHandlerWithOptions implements cache.Informer, for sources of controller-runtime, which use no other way.
func (i quietInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(quietHandler{handler, i.saysNothing}, opts)
}

type quietHandler struct {
	toolscache.ResourceEventHandler
	saysNothing func(before, after client.Object) bool
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (h quietHandler) OnUpdate(before, after any) {
	b, isObject := before.(client.Object)
	a, stillObject := after.(client.Object)
	if isObject && stillObject && h.saysNothing(b, a) {
		return
	}
	h.ResourceEventHandler.OnUpdate(before, after)
}
