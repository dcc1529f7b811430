package ssa

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cache applies objects as Apply does, without a request where it would change nothing: what is wanted is what was applied last, and none
// of it has changed since. It is in memory, so that a hub that has just started sends one request for each object. It is for kinds
// that Client, or Metadata, reads from a cache.
type Cache struct {
	Client client.Client
	// FieldOwner owns the fields that are applied.
	FieldOwner client.FieldOwner
	// Metadata reads the metadata of objects whose content no cache holds. Where it is set, no content is read: an object that needs no
	// request is filled with its metadata only.
	Metadata client.Reader
	// Compared are kinds of which others write the specification, too: where the generation has changed, what is wanted is compared with what
	// there is. No field that is wanted may be a map that the API server replaces as a whole. The names are those of fields of the
	// specification that are copied from what there is: they do not count as a change of what is wanted, and must equal what there is.
	Compared map[schema.GroupKind][]string

	mu sync.Mutex
	// applied holds what was applied for each reconciled object.
	applied map[client.ObjectKey][]applied
}

// applied is the state of an object.
type applied struct {
	identity
	state
}

// identity identifies what an owner of fields applies of an object.
type identity struct {
	owner, kind, namespace, name string
}

// state is what was wanted of an object, and what it was after that.
type state struct {
	wanted, copied, found [sha256.Size]byte
	// contentVersion is that of the content that has all that is wanted.
	contentVersion string
	uid            types.UID
	version        string
	generation     int64
	// written is when that was.
	written time.Time
}

// Apply makes the API server's object have what obj sets, and fills obj with the result, or with what the cache has where no request was
// needed, which may be older than the last request, except for the generation. reconciled is the object whose reconcile wants it; Forget
// drops everything that was applied for it.
func (c *Cache) Apply(ctx context.Context, reconciled client.ObjectKey, obj client.Object) error {
	return c.applyBy(ctx, reconciled, c.FieldOwner, obj, func() error { return Apply(ctx, c.Client, c.FieldOwner, obj) })
}

// applyBy is Apply with another request, of this owner, which fills obj with the result, too.
func (c *Cache) applyBy(
	ctx context.Context, reconciled client.ObjectKey, owner client.FieldOwner, obj client.Object, request func() error,
) error {
	want, err := c.describe(owner, obj)
	if err != nil {
		return err
	}
	if last, ok := c.load(reconciled, want.identity); ok && last.wanted == want.digest {
		same, err := c.unchanged(ctx, reconciled, obj, last, want)
		if same || err != nil {
			return err
		}
	}
	// A request that fails may have been served all the same.
	c.drop(reconciled, want.identity)
	if err := request(); err != nil {
		return err
	}
	return c.written(reconciled, want, obj)
}

// Create creates an object with what obj sets, which Apply then finds applied, and fills obj with the result. It is for objects of which
// nothing that is set is ever left out later: Apply would not remove it.
func (c *Cache) Create(ctx context.Context, reconciled client.ObjectKey, obj client.Object) error {
	want, err := c.describe(c.FieldOwner, obj)
	if err != nil {
		return err
	}
	if err := c.Client.Create(ctx, obj, c.FieldOwner); err != nil {
		return err
	}
	return c.written(reconciled, want, obj)
}

// written keeps what was wanted, and the result.
func (c *Cache) written(reconciled client.ObjectKey, want desired, result client.Object) error {
	found, err := want.fingerprint(result)
	if err != nil {
		return err
	}
	c.store(reconciled, want.identity, state{
		wanted: want.digest, copied: want.copiedDigest, found: found, contentVersion: want.contentVersionOf(result),
		uid: result.GetUID(), version: result.GetResourceVersion(), generation: result.GetGeneration(), written: time.Now(),
	})
	return nil
}

// describe returns what is wanted.
func (c *Cache) describe(owner client.FieldOwner, obj client.Object) (desired, error) {
	u, err := toUnstructured(c.Client.Scheme(), obj)
	if err != nil {
		return desired{}, err
	}
	kind := u.GroupVersionKind().GroupKind()
	want := desired{
		identity: identity{string(owner), kind.String(), u.GetNamespace(), u.GetName()},
		fields:   setBy(u),
	}
	if copied, compared := c.Compared[kind]; compared {
		want.object, want.copied = u, takeCopied(u, copied)
		if want.copiedDigest, err = digest(want.copied); err != nil {
			return desired{}, err
		}
	}
	want.digest, err = wantedDigest(u)
	return want, err
}

// Forget drops what was applied for an object that was deleted.
func (c *Cache) Forget(reconciled client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.applied, reconciled)
}

// forgetKind drops what was applied to objects of a kind for a reconciled object.
func (c *Cache) forgetKind(reconciled client.ObjectKey, kind schema.GroupKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.applied[reconciled], func(a applied) bool { return a.kind == kind.String() })
	if len(left) == 0 {
		delete(c.applied, reconciled)
		return
	}
	c.applied[reconciled] = left
}

func (c *Cache) load(reconciled client.ObjectKey, id identity) (state, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(reconciled, id); i >= 0 {
		return c.applied[reconciled][i].state, true
	}
	return state{}, false
}

func (c *Cache) store(reconciled client.ObjectKey, id identity, last state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applied == nil {
		c.applied = map[client.ObjectKey][]applied{}
	}
	if i := c.index(reconciled, id); i >= 0 {
		c.applied[reconciled][i].state = last
		return
	}
	c.applied[reconciled] = append(c.applied[reconciled], applied{id, last})
}

// update replaces what was applied to one object, unless it was forgotten meanwhile.
func (c *Cache) update(reconciled client.ObjectKey, id identity, last state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(reconciled, id); i >= 0 {
		c.applied[reconciled][i].state = last
	}
}

// drop forgets what was applied to one object.
func (c *Cache) drop(reconciled client.ObjectKey, id identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.index(reconciled, id)
	if i < 0 {
		return
	}
	if c.applied[reconciled] = slices.Delete(c.applied[reconciled], i, i+1); len(c.applied[reconciled]) == 0 {
		delete(c.applied, reconciled)
	}
}

// index is the place of an object among those of the reconciled one, or negative. c is locked.
func (c *Cache) index(reconciled client.ObjectKey, id identity) int {
	return slices.IndexFunc(c.applied[reconciled], func(a applied) bool { return a.identity == id })
}

// unchanged returns whether an object is what it was after it was applied last, by what the cache knows, and fills obj with what the cache
// has if so.
func (c *Cache) unchanged(ctx context.Context, reconciled client.ObjectKey, obj client.Object, last state, want desired) (bool, error) {
	current, err := c.read(ctx, obj)
	if apierrors.IsNotFound(err) {
		return c.isBehind(ctx, obj, last), nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	now, err := want.fingerprint(current)
	ahead := last.isAheadOf(current)
	if err != nil || now != last.found && !ahead {
		return false, err
	}
	if content := want.contentVersionOf(current); last.copied != want.copiedDigest || last.contentVersion != content && !ahead {
		if has, err := want.appliedTo(current); !has || err != nil {
			return false, err
		}
		last.copied, last.contentVersion = want.copiedDigest, content
		c.update(reconciled, want.identity, last)
	}
	if ahead { // whoever waits for what was applied must not take what was there before for it
		current.SetGeneration(max(current.GetGeneration(), last.generation))
	}
	if metadata, ok := current.(*metav1.PartialObjectMetadata); ok {
		reflect.ValueOf(obj).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(metadata.ObjectMeta))
		return true, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return true, c.Client.Scheme().Convert(current, u, nil)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(current).Elem())
	return true, nil
}

// isAheadOf reports whether a cache has not seen yet what was applied.
func (s state) isAheadOf(cached client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(s.version, cached.GetResourceVersion())
	return err == nil && order > 0 && s.uid == cached.GetUID() && time.Since(s.written) <= behindFor
}

// read reads an object, or its metadata. One of a known kind is read as such, also where it is applied unstructured: the cache has it
// already.
func (c *Cache) read(ctx context.Context, obj client.Object) (client.Object, error) {
	key, scheme := client.ObjectKeyFromObject(obj), c.Client.Scheme()
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	if c.Metadata == nil {
		current := client.Object(&unstructured.Unstructured{})
		if known, err := scheme.New(gvk); err == nil {
			current = known.(client.Object)
		}
		current.GetObjectKind().SetGroupVersionKind(gvk)
		return current, c.Client.Get(ctx, key, current)
	}
	current := &metav1.PartialObjectMetadata{}
	current.SetGroupVersionKind(gvk)
	return current, c.Metadata.Get(ctx, key, current)
}
