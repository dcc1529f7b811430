package ssa

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	wanted, found [sha256.Size]byte
	uid           types.UID
	version       string
	generation    int64
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
	id, set, wanted, err := c.describe(owner, obj)
	if err != nil {
		return err
	}
	if last, ok := c.load(reconciled, id); ok && last.wanted == wanted {
		same, err := c.unchanged(ctx, obj, last, set)
		if same || err != nil {
			return err
		}
	}
	// A request that fails may have been served all the same.
	c.drop(reconciled, id)
	if err := request(); err != nil {
		return err
	}
	found, err := set.fingerprint(obj)
	if err != nil {
		return err
	}
	c.store(reconciled, id, state{wanted, found, obj.GetUID(), obj.GetResourceVersion(), obj.GetGeneration(), time.Now()})
	return nil
}

// Create creates an object with what obj sets, which Apply then finds applied, and fills obj with the result. It is for objects of which
// nothing that is set is ever left out later: Apply would not remove it.
func (c *Cache) Create(ctx context.Context, reconciled client.ObjectKey, obj client.Object) error {
	id, set, wanted, err := c.describe(c.FieldOwner, obj)
	if err != nil {
		return err
	}
	if err := c.Client.Create(ctx, obj, c.FieldOwner); err != nil {
		return err
	}
	found, err := set.fingerprint(obj)
	if err != nil {
		return err
	}
	c.store(reconciled, id, state{wanted, found, obj.GetUID(), obj.GetResourceVersion(), obj.GetGeneration(), time.Now()})
	return nil
}

// describe returns which object is wanted, what it sets, and the digest of that.
func (c *Cache) describe(owner client.FieldOwner, obj client.Object) (id identity, set fields, wanted [sha256.Size]byte, err error) {
	u, err := toUnstructured(c.Client.Scheme(), obj)
	if err != nil {
		return id, set, wanted, err
	}
	id = identity{string(owner), u.GroupVersionKind().GroupKind().String(), u.GetNamespace(), u.GetName()}
	set = setBy(u)
	wanted, err = wantedDigest(u)
	return id, set, wanted, err
}

// Forget drops what was applied for an object that was deleted.
func (c *Cache) Forget(reconciled client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.applied, reconciled)
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
func (c *Cache) unchanged(ctx context.Context, obj client.Object, last state, set fields) (bool, error) {
	current, err := c.read(ctx, obj)
	if apierrors.IsNotFound(err) {
		return c.isBehind(ctx, obj, last), nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	now, err := set.fingerprint(current)
	if err != nil || now != last.found && !last.isAheadOf(current) {
		return false, err
	}
	if last.isAheadOf(current) { // whoever waits for what was applied must not take what was there before for it
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

// fields are what an apply sets. What others set beside it is none of its business: agents, the gateway and other controllers write plan
// Secrets all the time.
type fields struct {
	labels, annotations, finalizers []string
	owners                          []types.UID
	// content is whether more is set than the existence of the object and its metadata.
	content bool
}

// setBy returns what an apply of wanted sets.
func setBy(wanted *unstructured.Unstructured) fields {
	f := fields{
		labels:      slices.Sorted(maps.Keys(wanted.GetLabels())),
		annotations: slices.Sorted(maps.Keys(wanted.GetAnnotations())),
		finalizers:  wanted.GetFinalizers(),
	}
	for _, owner := range wanted.GetOwnerReferences() {
		f.owners = append(f.owners, owner.UID)
	}
	for field := range wanted.Object {
		f.content = f.content || !slices.Contains([]string{"apiVersion", "kind", "metadata", "type"}, field)
	}
	return f
}

// fingerprint changes with each of the fields. The generation stands for the spec, the resource version for the content of kinds without
// one.
func (f fields) fingerprint(obj client.Object) ([sha256.Size]byte, error) {
	var version any
	if f.content {
		version = obj.GetGeneration()
		if obj.GetGeneration() == 0 {
			version = obj.GetResourceVersion()
		}
	}
	var owners []metav1.OwnerReference
	for _, owner := range obj.GetOwnerReferences() {
		if slices.Contains(f.owners, owner.UID) {
			owners = append(owners, owner)
		}
	}
	var finalizers []string
	for _, finalizer := range obj.GetFinalizers() {
		if slices.Contains(f.finalizers, finalizer) {
			finalizers = append(finalizers, finalizer)
		}
	}
	return digest([]any{
		obj.GetUID(), version, of(obj.GetLabels(), f.labels), of(obj.GetAnnotations(), f.annotations), owners, finalizers,
	})
}

// of returns the values of some keys.
func of(all map[string]string, keys []string) map[string]string {
	some := make(map[string]string, len(keys))
	for _, key := range keys {
		if value, found := all[key]; found {
			some[key] = value
		}
	}
	return some
}

// wantedDigest is that of what is set. The UID only says that an object exists already, and is in the fingerprint.
func wantedDigest(wanted *unstructured.Unstructured) ([sha256.Size]byte, error) {
	unstructured.RemoveNestedField(wanted.Object, "metadata", "uid")
	return digest(wanted.Object)
}

func digest(content any) ([sha256.Size]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding an object: %w", err)
	}
	return sha256.Sum256(raw), nil
}
