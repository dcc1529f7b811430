package patch

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/managedfields"
)

// kept is how long what was written is remembered when nobody reads it. A watch that is behind for longer has ended, and begins again with
// a list.
const kept = 10 * time.Second

// written remembers the objects that were written, until the cache is known to have them, or for a time.
type written struct {
	keep    time.Duration
	ignored map[schema.GroupVersionKind]bool

	mu      sync.Mutex
	objects map[objectKey]entry
	sweeps  bool
}

type objectKey struct {
	schema.GroupVersionKind
	client.ObjectKey
}

type entry struct {
	object client.Object
	until  time.Time
}

func newWritten(keep time.Duration) *written {
	return &written{keep: keep, ignored: map[schema.GroupVersionKind]bool{}, objects: map[objectKey]entry{}}
}

// remember keeps object, which the caller leaves to it, unless a newer version is known. Of its managed fields it keeps what the cache
// does, since a controller may compare the two. What the write has removed for good, as the one
// that takes the last finalizer of an object does, is forgotten.
func (w *written) remember(gvk schema.GroupVersionKind, object client.Object) {
	if object == nil || object.GetResourceVersion() == "" {
		return
	}
	_, _ = managedfields.Trim(object) // never fails
	key := objectKey{gvk, client.ObjectKeyFromObject(object)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0 {
		delete(w.objects, key)
		return
	}
	if known, ok := w.objects[key]; ok && known.object.GetUID() == object.GetUID() && !newer(object, known.object) {
		return
	}
	w.objects[key] = entry{object, time.Now().Add(w.keep)}
	if !w.sweeps {
		w.sweeps = true
		time.AfterFunc(w.keep, w.sweep)
	}
}

func (w *written) forget(gvk schema.GroupVersionKind, key client.ObjectKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, objectKey{gvk, key})
}

// newerThan returns a copy of what was written of an object, or nil if what the cache has is not older.
func (w *written) newerThan(gvk schema.GroupVersionKind, key client.ObjectKey, cached client.Object) client.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.objects[objectKey{gvk, key}]
	if !ok {
		return nil
	}
	if known.object.GetUID() != cached.GetUID() || !newer(known.object, cached) || time.Now().After(known.until) {
		delete(w.objects, objectKey{gvk, key})
		return nil
	}
	if reflect.TypeOf(known.object) != reflect.TypeOf(cached) {
		return nil
	}
	return known.object.DeepCopyObject().(client.Object)
}

// sweep drops what is too old, and comes again while there is something left.
func (w *written) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for key, e := range w.objects {
		if !now.Before(e.until) {
			delete(w.objects, key)
		}
	}
	w.sweeps = len(w.objects) > 0
	if w.sweeps {
		time.AfterFunc(w.keep, w.sweep)
	}
}

// newer reports whether a is a later version of an object than b. Versions that cannot be compared are not: then the cache counts.
func newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

// typed reports whether an object has a Go type of its own, and is read from the cache of that type.
func typed(obj client.Object) bool {
	switch obj.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return false
	}
	t := reflect.TypeOf(obj)
	return t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// assign makes obj what other is, which has the same type.
func assign(obj, other client.Object) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(other).Elem())
}
