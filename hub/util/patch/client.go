package patch

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient is a client.NewClientFunc: a client as client.New makes it, whose Get returns what it has patched itself from the moment on
// that Patch has returned, if the cache has no newer version. All that share this client see each other's patches.
//
// The cache that controllers read from is behind for as long as a watch takes, which is some milliseconds on a quiet machine and a second
// on a busy one. In that time Cluster API's patch helper has conflicts, since it takes the resource version of conditions from such a
// read, and waits for 100 ms after each; and a controller decides on an object without what it has written itself.
//
// That goes for objects of types of the scheme, however they were patched. Lists, and objects that were created or updated, are those of
// the cache, and an object that the cache does not have is not found. opts.Cache.DisableFor names what is read from the API server anyway.
func NewClient(config *rest.Config, opts client.Options) (client.Client, error) {
	inner, err := client.New(config, opts)
	if err != nil || opts.Cache == nil || opts.Cache.Reader == nil {
		return inner, err
	}
	return wrap(inner, opts.Cache.DisableFor)
}

func wrap(inner client.Client, uncached []client.Object) (client.Client, error) {
	w := newWritten(kept)
	for _, object := range uncached {
		gvk, err := inner.GroupVersionKindFor(object)
		if err != nil {
			return nil, err
		}
		w.ignored[gvk] = true
	}
	return &caughtUp{inner, w}, nil
}

type caughtUp struct {
	client.Client
	written *written
}

// Get implements client.Client.
func (c *caughtUp) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if (err != nil && !apierrors.IsNotFound(err)) || !typed(obj) {
		return err
	}
	gvk, gvkErr := c.GroupVersionKindFor(obj)
	if gvkErr != nil {
		return err
	}
	if err != nil {
		c.written.forget(gvk, key)
		return err
	}
	if latest := c.written.newerThan(gvk, key, obj); latest != nil {
		assign(obj, latest)
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return nil
}

// Patch implements client.Client.
func (c *caughtUp) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	options := (&client.PatchOptions{}).ApplyOptions(opts)
	return c.patch(obj, patch, len(options.DryRun) > 0, func(into client.Object, p client.Patch) error {
		return c.Client.Patch(ctx, into, p, opts...)
	})
}

// Status implements client.Client.
func (c *caughtUp) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.Client.
func (c *caughtUp) SubResource(name string) client.SubResourceClient {
	inner := c.Client.SubResource(name)
	if name != "status" {
		return inner
	}
	return &status{inner, c}
}

type status struct {
	client.SubResourceClient
	client *caughtUp
}

// Patch implements client.SubResourceWriter.
func (s *status) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	options := (&client.SubResourcePatchOptions{}).ApplyOptions(opts)
	other := len(options.DryRun) > 0 || options.SubResourceBody != nil
	return s.client.patch(obj, patch, other, func(into client.Object, p client.Patch) error {
		return s.SubResourceClient.Patch(ctx, into, p, opts...)
	})
}

// patch sends a patch and remembers the answer, unless that is something other than the stored object.
//
// The answer to a patch of a typed object is decoded into a new object. Decoded into the one that was sent, it would leave in place what
// the object had and the answer has not: JSON is merged into maps, and into the elements of slices.
func (c *caughtUp) patch(obj client.Object, patch client.Patch, other bool, send func(client.Object, client.Patch) error) error {
	gvk, err := c.GroupVersionKindFor(obj)
	if other || err != nil || c.written.ignored[gvk] {
		return send(obj, patch)
	}
	if _, ok := obj.(*unstructured.Unstructured); ok {
		if err := send(obj, patch); err != nil {
			return err
		}
		if c.Scheme().Recognizes(gvk) {
			c.written.remember(gvk, c.asTyped(obj))
		}
		return nil
	}
	if !typed(obj) {
		return send(obj, patch)
	}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	answer := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	answer.SetNamespace(obj.GetNamespace())
	answer.SetName(obj.GetName())
	if err := send(answer, client.RawPatch(patch.Type(), data)); err != nil {
		return err
	}
	c.written.remember(gvk, answer.DeepCopyObject().(client.Object))
	assign(obj, answer)
	return nil
}

// asTyped is a copy of an unstructured object as the scheme's type, or nil if it is none.
func (c *caughtUp) asTyped(obj client.Object) client.Object {
	object, err := c.Scheme().New(obj.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil
	}
	converted, ok := object.(client.Object)
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(
		obj.(*unstructured.Unstructured).DeepCopy().Object, converted) != nil {
		return nil
	}
	return converted
}
