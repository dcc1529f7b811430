package capi

import (
	"context"
	"fmt"

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
	informer, err := sharedInformer(ctx, c.Cache, object, opts...)
	if err != nil {
		return nil, err
	}
	return quietInformer{informer, c.saysNothing}, nil
}

// sharedInformer returns the informer of a cache. Cluster API looks into informers, which have to stay what they are.
func sharedInformer(
	ctx context.Context, from cache.Cache, object client.Object, opts ...cache.InformerGetOption,
) (toolscache.SharedIndexInformer, error) {
	informer, err := from.GetInformer(ctx, object, opts...)
	if err != nil {
		return nil, err
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of %T is a %T, which is not shared", object, informer)
	}
	return shared, nil
}

type quietInformer struct {
	toolscache.SharedIndexInformer
	saysNothing func(before, after client.Object) bool
}

// AddEventHandlerWithOptions implements cache.Informer, for sources of controller-runtime, which use no other way.
func (i quietInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(quietHandler{handler, i.saysNothing}, opts)
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
