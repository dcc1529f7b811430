package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Keeper applies objects as Object does, and leaves the request out where it would change nothing: where what is wanted is what was applied
// last and the object has not changed since. It remembers that in memory, so a hub that has just started asks once for each object. It is
// for kinds that Client, or Metadata, reads from a cache.
type Keeper struct {
	Client client.Client
	Owner  client.FieldOwner
	// Metadata reads the metadata of objects whose content no cache holds. Where it is set, no content is read: an object that needs no request is
	// filled with its metadata only.
	Metadata client.Reader

	applied sync.Map // from identity to state
}

// identity tells an object from all others.
type identity struct {
	kind, namespace, name string
}

// state is what was wanted of an object and what it then was.
type state struct {
	wanted, found [sha256.Size]byte
}

// Object makes the API server's object have what obj sets, and fills obj with the result.
func (k *Keeper) Object(ctx context.Context, obj client.Object) error {
	u, err := toUnstructured(k.Client.Scheme(), obj)
	if err != nil {
		return err
	}
	id := identity{u.GroupVersionKind().String(), u.GetNamespace(), u.GetName()}
	wanted, err := digest(u.Object)
	if err != nil {
		return err
	}
	content := hasContent(u.Object)
	if last, ok := k.applied.Load(id); ok && last.(state).wanted == wanted {
		same, err := k.unchanged(ctx, obj, last.(state).found, content)
		if same || err != nil {
			return err
		}
	}
	if err := Object(ctx, k.Client, k.Owner, obj); err != nil {
		return err
	}
	found, err := fingerprint(obj, content)
	if err != nil {
		return err
	}
	k.applied.Store(id, state{wanted, found})
	return nil
}

// Forget drops what is remembered of objects that are gone.
func (k *Keeper) Forget(objects ...client.Object) error {
	for _, obj := range objects {
		gvk, err := apiutil.GVKForObject(obj, k.Client.Scheme())
		if err != nil {
			return fmt.Errorf("finding the kind of %T: %w", obj, err)
		}
		k.applied.Delete(identity{gvk.String(), obj.GetNamespace(), obj.GetName()})
	}
	return nil
}

// unchanged tells whether an object is what it was, and fills obj with it if so.
func (k *Keeper) unchanged(ctx context.Context, obj client.Object, was [sha256.Size]byte, content bool) (bool, error) {
	live, err := k.read(ctx, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	is, err := fingerprint(live, content)
	if err != nil || is != was {
		return false, err
	}
	if metadata, ok := live.(*metav1.PartialObjectMetadata); ok {
		reflect.ValueOf(obj).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(metadata.ObjectMeta))
		return true, nil
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(live).Elem())
	return true, nil
}

// read reads an object, or its metadata.
func (k *Keeper) read(ctx context.Context, obj client.Object) (client.Object, error) {
	key := client.ObjectKeyFromObject(obj)
	if k.Metadata == nil {
		live := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
		return live, k.Client.Get(ctx, key, live)
	}
	gvk, err := apiutil.GVKForObject(obj, k.Client.Scheme())
	if err != nil {
		return nil, err
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(gvk)
	return live, k.Metadata.Get(ctx, key, live)
}

// hasContent tells whether more is wanted of an object than that it is there with its metadata.
func hasContent(wanted map[string]any) bool {
	for field := range wanted {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "type"}, field) {
			return true
		}
	}
	return false
}

// fingerprint changes with everything that an applied object can hold. The generation stands for the spec; kinds without one change their
// resource version only when they change. Where no content was applied, others may write theirs: agents write plan Secrets all the time.
func fingerprint(obj client.Object, content bool) ([sha256.Size]byte, error) {
	version := any(obj.GetGeneration())
	if obj.GetGeneration() == 0 {
		version = obj.GetResourceVersion()
	}
	if !content {
		version = nil
	}
	return digest([]any{obj.GetUID(), version, obj.GetLabels(), obj.GetAnnotations(), obj.GetOwnerReferences()})
}

func digest(content any) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding an object: %w", err)
	}
	return sha256.Sum256(raw), nil
}
