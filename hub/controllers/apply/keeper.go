package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper applies objects as Object does, and leaves the request out where it would change nothing: where what is wanted is what was applied
// last and the object has not changed since. It remembers that in memory, so a hub that has just started asks once for each object. It is
// for kinds that Client reads from a cache.
type Keeper struct {
	Client client.Client
	Owner  client.FieldOwner

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
	if last, ok := k.applied.Load(id); ok && last.(state).wanted == wanted {
		same, err := k.unchanged(ctx, obj, last.(state).found)
		if same || err != nil {
			return err
		}
	}
	if err := Object(ctx, k.Client, k.Owner, obj); err != nil {
		return err
	}
	found, err := fingerprint(obj)
	if err != nil {
		return err
	}
	k.applied.Store(id, state{wanted, found})
	return nil
}

// unchanged tells whether an object is what it was, and fills obj with it if so.
func (k *Keeper) unchanged(ctx context.Context, obj client.Object, was [sha256.Size]byte) (bool, error) {
	live := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	err := k.Client.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	is, err := fingerprint(live)
	if err != nil || is != was {
		return false, err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(live).Elem())
	return true, nil
}

// fingerprint changes with everything that an applied object can hold. The generation stands for the spec; kinds without one change their
// resource version only when they change.
func fingerprint(obj client.Object) ([sha256.Size]byte, error) {
	version := any(obj.GetGeneration())
	if obj.GetGeneration() == 0 {
		version = obj.GetResourceVersion()
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
