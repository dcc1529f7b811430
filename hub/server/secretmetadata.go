package server

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretMetadata is a cache that has the metadata of Secrets from its Secrets, most of which it holds without their content. Otherwise it
// would hold the same twice, with a second watch. A list of metadata is as in the cache below.
type secretMetadata struct{ cache.Cache }

// ofSecret returns the metadata of a Secret, or nil for any other object.
func ofSecret(object client.Object) *metav1.PartialObjectMetadata {
	metadata, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || metadata.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		return nil
	}
	return metadata
}

// Get implements client.Reader.
func (c secretMetadata) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	metadata := ofSecret(object)
	if metadata == nil {
		return c.Cache.Get(ctx, key, object, opts...)
	}
	var secret corev1.Secret
	if err := c.Cache.Get(ctx, key, &secret, append(slices.Clone(opts), client.UnsafeDisableDeepCopy)...); err != nil {
		return err
	}
	secret.ObjectMeta.DeepCopyInto(&metadata.ObjectMeta)
	return nil
}

// GetInformer implements cache.Informers.
func (c secretMetadata) GetInformer(
	ctx context.Context, object client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	if ofSecret(object) == nil {
		return c.Cache.GetInformer(ctx, object, opts...)
	}
	informer, err := c.Cache.GetInformer(ctx, &corev1.Secret{}, opts...)
	if err != nil {
		return nil, err
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("the informer of Secrets is a %T, which is not shared", informer)
	}
	return metadataInformer{shared}, nil
}

// metadataInformer is the informer of Secrets for those who want their metadata.
type metadataInformer struct{ toolscache.SharedIndexInformer }

// AddEventHandlerWithOptions implements cache.Informer, for sources of controller-runtime, which use no other way.
func (i metadataInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(metadataHandler{handler}, opts)
}

// metadataHandler passes events of Secrets on as those of their metadata.
type metadataHandler struct {
	toolscache.ResourceEventHandler
}

// OnAdd implements toolscache.ResourceEventHandler.
func (h metadataHandler) OnAdd(object any, initial bool) {
	h.ResourceEventHandler.OnAdd(withoutContent(object), initial)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (h metadataHandler) OnUpdate(before, after any) {
	h.ResourceEventHandler.OnUpdate(withoutContent(before), withoutContent(after))
}

// OnDelete implements toolscache.ResourceEventHandler.
func (h metadataHandler) OnDelete(object any) {
	h.ResourceEventHandler.OnDelete(withoutContent(object))
}

func withoutContent(object any) any {
	switch object := object.(type) {
	case *corev1.Secret:
		metadata := &metav1.PartialObjectMetadata{ObjectMeta: object.ObjectMeta}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		return metadata
	case toolscache.DeletedFinalStateUnknown:
		object.Obj = withoutContent(object.Obj)
		return object
	}
	return object
}
