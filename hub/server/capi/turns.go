package capi

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turns is the client of the MachineSet controller. MachineSets create their Machines one after the other, but all MachineSets at the same
// time; when ten of them do, Machines exist long before the hub comes to make them ready, and each of them is looked at again and again
// meanwhile. Here their writes take turns, so that no MachineSet waits for another to be done. A turn ends after turnTime at the latest:
// that of a provider with a slow webhook is nobody else's matter.
type turns struct {
	client.Client
	free *semaphore.Weighted
}

const (
	// turnTime is longer than a write takes on a busy hub.
	turnTime = 2 * time.Second
	// requestTime is how long a write may take, also where the time of the reconcile ends before. A reconcile that does not get the answer
	// does not know of the Machine that it has created, and the next one, whose cache does not know of it either, creates one too many.
	requestTime = 30 * time.Second
)

func newTurns(c client.Client) turns {
	const forEachProcessor = 2
	return turns{c, semaphore.NewWeighted(int64(forEachProcessor * goruntime.GOMAXPROCS(0)))}
}

// Apply implements client.Writer.
func (t turns) Apply(ctx context.Context, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return t.wait(ctx, func(ctx context.Context) error { return t.Client.Apply(ctx, object, opts...) })
}

// Patch implements client.Writer.
func (t turns) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return t.wait(ctx, func(ctx context.Context) error { return t.Client.Patch(ctx, object, patch, opts...) })
}

func (t turns) wait(ctx context.Context, do func(context.Context) error) error {
	if err := t.free.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for other MachineSets: %w", err)
	}
	var once sync.Once
	release := func() { once.Do(func() { t.free.Release(1) }) }
	timer := time.AfterFunc(turnTime, release)
	defer timer.Stop()
	defer release()
	ctx, cancel := beyondDeadline(ctx)
	defer cancel()
	return do(ctx)
}

// beyondDeadline returns a context that ends after requestTime, and with one that is canceled, as when the hub stops, but not with its
// deadline.
func beyondDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}
