package dryrun

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dryRunClient drops writes, and edits what is read.
type dryRunClient struct {
	client.Client
	edit func(client.Object)
}

// Get implements client.Reader.
func (c *dryRunClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, into, opts...)
	if err == nil && c.edit != nil {
		c.edit(into)
	}
	return err
}

// List implements client.Reader.
func (c *dryRunClient) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, into, opts...); err != nil || c.edit == nil {
		return err
	}
	return meta.EachListItem(into, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			c.edit(object)
		}
		return nil
	})
}

// Create implements client.Writer.
func (c *dryRunClient) Create(context.Context, client.Object, ...client.CreateOption) error {
	return nil
}

// Update implements client.Writer.
func (c *dryRunClient) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return nil
}

// Patch implements client.Writer.
func (c *dryRunClient) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// Apply implements client.Writer.
func (c *dryRunClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return nil
}

// Delete implements client.Writer.
func (c *dryRunClient) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return nil
}
