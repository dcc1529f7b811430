// Package objectcache caches the data of the few Secrets and ConfigMaps that a controller reads. The manager's cache watches all of them
// without their data; its resource versions say when the data has to be read again.
package objectcache

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache holds the Secrets and ConfigMaps that were read. The zero Cache is empty and ready for use.
type Cache struct {
	mu         sync.Mutex
	secrets    map[client.ObjectKey]*corev1.Secret
	configMaps map[client.ObjectKey]*corev1.ConfigMap
}

// Secret returns a Secret with its data, which is not to be changed: from cached if that has the data, otherwise as it was last read from
// live.
func (c *Cache) Secret(ctx context.Context, cached, live client.Reader, key client.ObjectKey) (*corev1.Secret, error) {
	seen := &corev1.Secret{}
	err := cached.Get(ctx, key, seen)
	if err == nil && len(seen.Data) > 0 {
		return seen, nil
	}
	return get(ctx, c, &c.secrets, key, seen, err, live, &corev1.Secret{})
}

// ConfigMap returns a ConfigMap with its data, which is not to be changed. cached has its metadata.
func (c *Cache) ConfigMap(ctx context.Context, cached, live client.Reader, key client.ObjectKey) (*corev1.ConfigMap, error) {
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := cached.Get(ctx, key, seen)
	return get(ctx, c, &c.configMaps, key, seen, err, live, &corev1.ConfigMap{})
}

// get returns the object of the version that was seen, and reads it where another one is cached. err is that of seeing it.
func get[T client.Object](ctx context.Context, c *Cache, in *map[client.ObjectKey]T, key client.ObjectKey, seen client.Object, err error,
	live client.Reader, into T) (T, error) {
	c.mu.Lock()
	if err != nil {
		delete(*in, key)
	}
	known, ok := (*in)[key]
	c.mu.Unlock()
	if err != nil {
		return into, err
	}
	if ok && known.GetUID() == seen.GetUID() && known.GetResourceVersion() == seen.GetResourceVersion() {
		return known, nil
	}
	if err := live.Get(ctx, key, into); err != nil {
		return into, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if *in == nil {
		*in = map[client.ObjectKey]T{}
	}
	(*in)[key] = into
	return into, nil
}
