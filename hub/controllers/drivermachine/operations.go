package drivermachine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// operations are the drivers that are running, one for a machine at most. What comes of them is in the machine state Secret.
type operations struct {
	mutex   sync.Mutex
	running map[types.UID]*operation
	// failures are those of machines whose last operation has failed.
	failures map[types.UID]*failure
	// parent ends with the hub.
	parent context.Context //nolint:containedctx
}

type operation struct {
	removal bool
	cancel  context.CancelFunc
	// queued is true while it waits for those of other machines.
	queued atomic.Bool
	// ended is closed when it is over, and its outcome was written if it could be.
	ended chan struct{}
}

// failure is why an operation could not begin, or not write its outcome: what is in the machine state Secret does not tell.
type failure struct {
	removal bool
	err     error
	// times is how often it has failed in a row.
	times int
	// notBefore is when it may begin again.
	notBefore time.Time
}

func newOperations(parent context.Context) *operations {
	return &operations{running: map[types.UID]*operation{}, failures: map[types.UID]*failure{}, parent: parent}
}

// get returns the operation of a machine; nil if there is none.
func (o *operations) get(machine types.UID) *operation {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.running[machine]
}

// queue notes whether the operation of a machine waits for those of others.
func (o *operations) queue(machine types.UID, waits bool) {
	if running := o.get(machine); running != nil {
		running.queued.Store(waits)
	}
}

// failure returns how the last operation of a machine has failed; nil if it has not, or was another one.
func (o *operations) failure(machine types.UID, removal bool) *failure {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if f := o.failures[machine]; f != nil && f.removal == removal {
		return f
	}
	return nil
}

// forget drops what is known of a machine that is gone.
func (o *operations) forget(machine types.UID) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	delete(o.failures, machine)
}

// start runs an operation of a machine that has none, unless the hub stops: its controllers run for a while longer, and would begin again
// what has just ended. ended is called after it is over and forgotten.
func (o *operations) start(machine types.UID, removal bool, now func() time.Time, do func(context.Context) error, ended func()) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.running[machine] != nil || o.parent.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.parent)
	begun := &operation{removal: removal, cancel: cancel, ended: make(chan struct{})}
	o.running[machine] = begun
	go func() {
		defer cancel()
		err := do(ctx)
		o.mutex.Lock()
		delete(o.running, machine)
		o.record(machine, removal, err, now)
		o.mutex.Unlock()
		close(begun.ended)
		ended()
	}()
}

// settleTime is how long a hub that stops waits for drivers that create machines. A cloud answers within it as a rule.
const settleTime = 10 * time.Second

// settle returns when the creations that run are over, or after settleTime. What a removal has not done yet, the next one does.
func (o *operations) settle() {
	o.mutex.Lock()
	var creations []*operation
	for _, running := range o.running {
		if !running.removal {
			creations = append(creations, running)
		}
	}
	o.mutex.Unlock()
	limit := time.After(settleTime)
	for _, creation := range creations {
		select {
		case <-creation.ended:
		case <-limit:
			return
		}
	}
}

// record notes how an operation has ended.
func (o *operations) record(machine types.UID, removal bool, err error, now func() time.Time) {
	before := o.failures[machine]
	delete(o.failures, machine)
	if err == nil {
		return
	}
	f := &failure{removal: removal, err: err, times: 1}
	if before != nil && before.removal == removal {
		f.times += before.times
	}
	f.notBefore = now().Add(backoff(f.times))
	o.failures[machine] = f
}
