package drivermachine

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// operations are the drivers that are running, one for a machine at most. What comes of them is in the machine state Secret.
type operations struct {
	mutex   sync.Mutex
	running map[types.UID]*operation
	// parent ends with the hub.
	parent context.Context //nolint:containedctx
}

type operation struct {
	removal bool
	cancel  context.CancelFunc
}

// get returns the operation of a machine; nil if there is none.
func (o *operations) get(machine types.UID) *operation {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.running[machine]
}

// start runs an operation of a machine that has none. ended is called after it is over and forgotten.
func (o *operations) start(machine types.UID, removal bool, do func(context.Context), ended func()) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.running[machine] != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.parent)
	o.running[machine] = &operation{removal: removal, cancel: cancel}
	go func() {
		defer cancel()
		do(ctx)
		o.mutex.Lock()
		delete(o.running, machine)
		o.mutex.Unlock()
		ended()
	}()
}
