package capi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// turns is the client of the MachineSet controller. MachineSets create their Machines one after the other, but all MachineSets at the same
// time; when ten of them do, Machines exist long before the hub comes to make them ready, and each of them is looked at again and again
// meanwhile. Here their writes take turns, so that no MachineSet waits for another to be done. A turn ends after turnTime at the latest:
// that of a provider with a slow webhook is nobody else's matter.
//
// When the time of a reconcile ends, it begins no other Machine, but completes the one that it has begun: bootstrap configuration and
// infrastructure machine without a Machine would be left behind.
type turns struct {
	client.Client
	free  *semaphore.Weighted
	begun *begun
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
	return turns{c, semaphore.NewWeighted(int64(forEachProcessor * goruntime.GOMAXPROCS(0))), &begun{at: map[client.ObjectKey]time.Time{}}}
}

// Apply implements client.Writer.
func (t turns) Apply(ctx context.Context, object runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	var name client.ObjectKey
	if u, ok := object.(runtime.Unstructured); ok {
		name = client.ObjectKeyFromObject(&unstructured.Unstructured{Object: u.UnstructuredContent()})
	}
	return t.wait(ctx, name, func(ctx context.Context) error { return t.Client.Apply(ctx, object, opts...) })
}

// Patch implements client.Writer.
func (t turns) Patch(ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return t.wait(ctx, client.ObjectKeyFromObject(object), func(ctx context.Context) error {
		return t.Client.Patch(ctx, object, patch, opts...)
	})
}

// Delete implements client.Writer. What was created for a Machine that could not be created is deleted also when the time of the reconcile
// has ended.
func (t turns) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if t.begun.recently(client.ObjectKeyFromObject(object)) {
		longer, cancel := beyondDeadline(ctx)
		defer cancel()
		ctx = longer
	}
	return t.Client.Delete(ctx, object, opts...)
}

// wait waits for a turn and does something to an object: name is that of the Machine, and of what belongs to it.
func (t turns) wait(ctx context.Context, name client.ObjectKey, do func(context.Context) error) error {
	waiting := ctx
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < requestTime && t.begun.recently(name) {
		longer, cancel := beyondDeadline(ctx)
		defer cancel()
		waiting = longer
	}
	if err := t.free.Acquire(waiting, 1); err != nil {
		return fmt.Errorf("waiting for other MachineSets: %w", err)
	}
	t.begun.set(name)
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

// begun are the Machines to which, or to what belongs to them, something was done, and when it was last.
type begun struct {
	mu sync.Mutex
	at map[client.ObjectKey]time.Time
}

const (
	// begunFor is longer than a MachineSet waits for its next turn and does something in it.
	begunFor = 3 * requestTime
	// maxBegun is more than can be done something to in that time.
	maxBegun = 10_000
)

func (b *begun) recently(name client.ObjectKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.at[name]
	return ok && time.Since(at) < begunFor
}

func (b *begun) set(name client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) >= maxBegun {
		maps.DeleteFunc(b.at, func(_ client.ObjectKey, at time.Time) bool { return time.Since(at) >= begunFor })
	}
	if name.Name != "" {
		b.at[name] = time.Now()
	}
}
