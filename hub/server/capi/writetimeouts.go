package capi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeTimeout is how long a write to a cluster may take with its retries. client-go repeats a request ten times if the server asks for
// it, each time after as many seconds as the server likes (Retry-After), and a worker of a controller waits with it. Ten Machines of one
// hostile cluster would stop a controller for all clusters. Upstream's clients limit reads so.
const writeTimeout = 30 * time.Second

var errWriteTimeout = errors.New("the API server of the cluster did not do it within " + writeTimeout.String())

// GetClient implements clustercache.ClusterCache.
func (c *Connections) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	remote, err := c.ClusterCache.GetClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return writeTimeouts{remote}, nil
}

// GetUncachedClient implements clustercache.ClusterCache.
func (c *Connections) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	remote, err := c.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return writeTimeouts{remote}, nil
}

// writeTimeouts limits all writes but those of subresources: evictions, which are the only ones, have the time that their callers give
// them.
type writeTimeouts struct{ client.Client }

func within(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errWriteTimeout)
	defer cancel()
	err := write(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errWriteTimeout) {
		return fmt.Errorf("%w: %w", errWriteTimeout, err)
	}
	return err
}

// Create implements client.Writer.
func (c writeTimeouts) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, object, opts...) })
}

// Delete implements client.Writer.
func (c writeTimeouts) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, object, opts...) })
}

// Update implements client.Writer.
func (c writeTimeouts) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, object, opts...) })
}

// Patch implements client.Writer.
func (c writeTimeouts) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, object, patch, opts...) })
}

// Apply implements client.Writer.
func (c writeTimeouts) Apply(ctx context.Context, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.Apply(ctx, object, opts...) })
}

// DeleteAllOf implements client.Writer.
func (c writeTimeouts) DeleteAllOf(ctx context.Context, object client.Object, opts ...client.DeleteAllOfOption) error {
	return within(ctx, func(ctx context.Context) error { return c.Client.DeleteAllOf(ctx, object, opts...) })
}
