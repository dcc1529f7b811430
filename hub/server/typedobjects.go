package server

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// typedObjects is a cache that has what Cluster API's controllers read without a type, of kinds that the hub's controllers read with one,
// from these. Otherwise it would hold the same twice, with a second watch. Who watches such a kind gets typed objects, and a list without a
// type is as in the cache below. Zero values that were written explicitly are left out, as everywhere in the hub.
type typedObjects struct {
	cache.Cache
	scheme *runtime.Scheme
}

// readByBoth are the kinds, of which there is one for each machine or cluster at least.
var readByBoth = []schema.GroupVersionKind{
	rkev1.GroupVersion.WithKind("RKEBootstrap"), rkev1.GroupVersion.WithKind("RKEControlPlane"), rkev1.GroupVersion.WithKind("RKECluster"),
}

// typedFor returns an object with a type for what is to be read or watched without one, and nil where that is not of readByBoth.
func (c typedObjects) typedFor(object client.Object) (client.Object, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || !slices.Contains(readByBoth, u.GroupVersionKind()) {
		return nil, nil
	}
	created, err := c.scheme.New(u.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("creating a typed object: %w", err)
	}
	typed, ok := created.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", created)
	}
	return typed, nil
}

// Get implements client.Reader.
func (c typedObjects) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	typed, err := c.typedFor(object)
	if err != nil {
		return err
	}
	if typed == nil {
		return c.Cache.Get(ctx, key, object, opts...)
	}
	if err := c.Cache.Get(ctx, key, typed, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return fmt.Errorf("converting a %T: %w", typed, err)
	}
	u, gvk := object.(*unstructured.Unstructured), object.GetObjectKind().GroupVersionKind()
	u.SetUnstructuredContent(content)
	u.SetGroupVersionKind(gvk)
	return nil
}

// GetInformer implements cache.Informers.
func (c typedObjects) GetInformer(
	ctx context.Context, object client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	typed, err := c.typedFor(object)
	if err != nil {
		return nil, err
	}
	if typed != nil {
		object = typed
	}
	return c.Cache.GetInformer(ctx, object, opts...)
}
