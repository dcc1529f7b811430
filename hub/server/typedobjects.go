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
type typedObjects struct{ cache.Cache }

// readByBoth makes objects of these kinds, of which there is one for each machine or cluster at least.
var readByBoth = map[schema.GroupVersionKind]func() client.Object{
	rkev1.GroupVersion.WithKind("RKEBootstrap"):    func() client.Object { return &rkev1.RKEBootstrap{} },
	rkev1.GroupVersion.WithKind("RKEControlPlane"): func() client.Object { return &rkev1.RKEControlPlane{} },
	rkev1.GroupVersion.WithKind("RKECluster"):      func() client.Object { return &rkev1.RKECluster{} },
}

// typedFor returns an object with a type for what is to be read or watched without one, and nil where that is not of readByBoth.
func typedFor(object client.Object) client.Object {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if create, both := readByBoth[u.GroupVersionKind()]; both {
			return create()
		}
	}
	return nil
}

// Get implements client.Reader.
func (c typedObjects) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	typed := typedFor(object)
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
	if typed := typedFor(object); typed != nil {
		object = typed
	}
	return c.Cache.GetInformer(ctx, object, opts...)
}
