package controlplane

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents are the Secrets and ConfigMaps that plans are made of, as they were last read. The manager's cache holds no content of such
// objects, since it watches all of them; it tells which version there is, so that each is asked for once and a pass at rest asks for nothing.
type contents struct {
	mu         sync.Mutex
	secrets    map[client.ObjectKey]*corev1.Secret
	configMaps map[client.ObjectKey]*corev1.ConfigMap
}

// secret returns a Secret with its content. It is not to be changed.
func (c *contents) secret(ctx context.Context, cache, live client.Reader, key client.ObjectKey) (*corev1.Secret, error) {
	seen := &corev1.Secret{}
	if err := cache.Get(ctx, key, seen); err != nil {
		forget(c, &c.secrets, key)
		return nil, err
	}
	if len(seen.Data) > 0 {
		return seen, nil
	}
	return remember(ctx, c, &c.secrets, key, seen.UID, seen.ResourceVersion, live, &corev1.Secret{})
}

// configMap returns a ConfigMap with its content. It is not to be changed.
func (c *contents) configMap(ctx context.Context, cache, live client.Reader, key client.ObjectKey) (*corev1.ConfigMap, error) {
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := cache.Get(ctx, key, seen); err != nil {
		forget(c, &c.configMaps, key)
		return nil, err
	}
	return remember(ctx, c, &c.configMaps, key, seen.UID, seen.ResourceVersion, live, &corev1.ConfigMap{})
}

// remember returns the object of that version, and reads it where another one is known.
func remember[T client.Object](ctx context.Context, c *contents, in *map[client.ObjectKey]T, key client.ObjectKey, uid types.UID, version string, live client.Reader, into T) (T, error) {
	c.mu.Lock()
	known, ok := (*in)[key]
	c.mu.Unlock()
	if ok && known.GetUID() == uid && known.GetResourceVersion() == version {
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

func forget[T client.Object](c *contents, in *map[client.ObjectKey]T, key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(*in, key)
}
