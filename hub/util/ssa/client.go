package ssa

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client leaves out the requests for server-side apply that would change nothing, as Cache does, for a controller of another project that
// applies all its objects unstructured. An object is read as the kind that the client's scheme knows, or else unstructured.
type Client struct {
	client.Client
	applied *Cache
}

// NewClient returns a Client that sends its requests with another one. compared is as in a Cache; it may be nil.
func NewClient(c client.Client, compared map[schema.GroupKind][]string) Client {
	return Client{c, &Cache{Client: c, Compared: compared}}
}

// Apply implements client.Writer. A dry run is always sent.
func (c Client) Apply(ctx context.Context, configuration runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	wanted, ok := configuration.(runtime.Unstructured)
	options := (&client.ApplyOptions{}).ApplyOptions(opts)
	if !ok || len(options.DryRun) > 0 {
		return c.Client.Apply(ctx, configuration, opts...)
	}
	object := &unstructured.Unstructured{Object: wanted.UnstructuredContent()}
	send := func() error {
		err := c.Client.Apply(ctx, configuration, opts...)
		object.Object = wanted.UnstructuredContent() // the result
		return err
	}
	name, owner := client.ObjectKeyFromObject(object), client.FieldOwner(options.FieldManager)
	if err := c.applied.applyBy(ctx, name, owner, object, send); err != nil {
		return err
	}
	wanted.SetUnstructuredContent(object.Object)
	return nil
}

// Patch implements client.Writer. What is applied to the object next is sent: a patch may be one of managed fields, which an apply
// completes.
func (c Client) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	kind, err := c.GroupVersionKindFor(object)
	if err != nil {
		return err
	}
	c.applied.forgetKind(client.ObjectKeyFromObject(object), kind.GroupKind())
	return c.Client.Patch(ctx, object, patch, opts...)
}

// Applied records that an owner of fields has what wanted sets, and nothing else, after another request whose result is object.
func (c Client) Applied(owner client.FieldOwner, wanted *unstructured.Unstructured, object client.Object) error {
	want, err := c.applied.describe(owner, wanted)
	if err != nil {
		return err
	}
	return c.applied.written(client.ObjectKeyFromObject(object), want, object)
}

// Forget drops what was applied to the objects with a name, of whatever kind.
func (c Client) Forget(name client.ObjectKey) { c.applied.Forget(name) }
