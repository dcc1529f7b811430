package drivermachine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSettle: a hub that stops waits until a driver has ended that creates a machine, and not for long for one that does not end.
func TestSettle(t *testing.T) {
	for name, test := range map[string]struct {
		removal bool
		// ends is how long after the hub has begun to stop the driver ends.
		ends, want time.Duration
	}{
		"a creation":                   {ends: 3 * time.Second, want: 3 * time.Second},
		"a creation that does not end": {ends: time.Hour, want: settleTime},
		"a removal":                    {removal: true, ends: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				r := &Reconciler{operations: newOperations(ctx)}
				r.operations.start("machine", test.removal, time.Now, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(test.ends)
					return nil
				}, func() {})
				stop()
				begun := time.Now()
				r.Settle()
				if took := time.Since(begun); took != test.want {
					t.Errorf("waited %s, want %s", took, test.want)
				}
				time.Sleep(test.ends)
			})
		})
	}
	(&Reconciler{}).Settle() // its provider does not run in this process
}

// TestStartWhileStopping: the controllers of a hub that stops run for a while, and begin nothing.
func TestStartWhileStopping(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	o := newOperations(ctx)
	stop()
	o.start("machine", false, time.Now, func(context.Context) error { return nil }, func() {})
	if o.get("machine") != nil || o.failure("machine", false) != nil {
		t.Error("an operation has begun")
	}
}
