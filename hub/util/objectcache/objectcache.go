// Package objectcache caches the data of the few Secrets and ConfigMaps that a controller reads. The manager's cache watches all of them
// without their data; its resource versions say when the data has to be read again.
package objectcache

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Cache holds the Secrets and ConfigMaps that were read, until they are deleted: the watches of both kinds need its predicates, since
// nobody asks for the objects of a deleted cluster. The zero Cache is empty and ready for use.
type Cache struct {
	secrets    store[*corev1.Secret]
	configMaps store[*corev1.ConfigMap]
}

// Secret returns a Secret with its data, which is not to be changed: from cached if that has the data, otherwise as it was last read from
// live.
func (c *Cache) Secret(ctx context.Context, cached, live client.Reader, key client.ObjectKey) (*corev1.Secret, error) {
	seen := &corev1.Secret{}
	see := func() error { return cached.Get(ctx, key, seen) }
	err := see()
	if err == nil && len(seen.Data) > 0 {
		return seen, nil
	}
	return c.secrets.get(ctx, live, key, view{seen, err, see}, &corev1.Secret{})
}

// ConfigMap returns a ConfigMap with its data, which is not to be changed. cached has its metadata.
func (c *Cache) ConfigMap(ctx context.Context, cached, live client.Reader, key client.ObjectKey) (*corev1.ConfigMap, error) {
	seen := &metav1.PartialObjectMetadata{}
	seen.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	see := func() error { return cached.Get(ctx, key, seen) }
	return c.configMaps.get(ctx, live, key, view{seen, see(), see}, &corev1.ConfigMap{})
}

// ForgetSecrets passes all events of Secrets, and drops those that are deleted.
func (c *Cache) ForgetSecrets() predicate.Predicate { return onDelete(c.secrets.forget) }

// ForgetConfigMaps passes all events of ConfigMaps, and drops those that are deleted.
func (c *Cache) ForgetConfigMaps() predicate.Predicate { return onDelete(c.configMaps.forget) }

func onDelete(forget func(client.ObjectKey)) predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		forget(client.ObjectKeyFromObject(e.Object))
		return true
	}}
}

// view is an object as the manager's cache has it.
type view struct {
	seen client.Object
	// err is why it was not seen; nil if it was.
	err error
	// again reads seen again.
	again func() error
}

// store holds objects of one kind.
type store[T client.Object] struct {
	mu   sync.Mutex
	held map[client.ObjectKey]T
}

// get returns the object of the version that was seen, and reads it into an object where another one is held.
func (s *store[T]) get(ctx context.Context, live client.Reader, key client.ObjectKey, v view, into T) (T, error) {
	if v.err != nil {
		s.forget(key)
		return into, v.err
	}
	if known, ok := s.load(key); ok && known.GetUID() == v.seen.GetUID() && known.GetResourceVersion() == v.seen.GetResourceVersion() {
		return known, nil
	}
	if err := live.Get(ctx, key, into); err != nil {
		return into, err
	}
	s.hold(key, into)
	// The event of its deletion may have come before it was held.
	if apierrors.IsNotFound(v.again()) {
		s.forget(key)
	}
	return into, nil
}

func (s *store[T]) load(key client.ObjectKey) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.held[key]
	return known, ok
}

func (s *store[T]) hold(key client.ObjectKey, object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[client.ObjectKey]T{}
	}
	s.held[key] = object
}

func (s *store[T]) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, key)
}
