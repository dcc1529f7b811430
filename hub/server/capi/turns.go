package capi

import (
	"context"
	"fmt"
	goruntime "runtime"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turns is the client of the MachineSet controller. MachineSets create their Machines one after the other, but all MachineSets at the same
// time; when ten of them do, Machines exist long before the hub comes to make them ready, and each of them is looked at again and again
// meanwhile. Here their requests take turns, so that no MachineSet waits for another to be done.
type turns struct {
	client.Client
	free *semaphore.Weighted
}

func newTurns(c client.Client) turns {
	const forEachProcessor = 2
	return turns{c, semaphore.NewWeighted(int64(forEachProcessor * goruntime.GOMAXPROCS(0)))}
}

// Apply implements client.Writer.
func (t turns) Apply(ctx context.Context, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return t.wait(ctx, func() error { return t.Client.Apply(ctx, object, opts...) })
}

// Patch implements client.Writer.
func (t turns) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return t.wait(ctx, func() error { return t.Client.Patch(ctx, object, patch, opts...) })
}

func (t turns) wait(ctx context.Context, do func() error) error {
	if err := t.free.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for other MachineSets: %w", err)
	}
	defer t.free.Release(1)
	return do()
}
