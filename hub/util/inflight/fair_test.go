package inflight

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// TestFair: a slot that becomes free goes to the key that holds the fewest, and among those to the one that came first. Who is not waiting
// any more gets none.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFair(2)
		acquire := func(ctx context.Context, key string) func() {
			release, ok := f.Acquire(ctx, key, nil)
			if !ok {
				t.Errorf("%s got no slot", key)
				return func() {}
			}
			return release
		}
		first, second := acquire(t.Context(), "many"), acquire(t.Context(), "many")
		given := make(chan string, 4)
		releases := make(chan func(), 4)
		for _, key := range []string{"many", "many", "few", "few"} {
			go func() {
				release := acquire(t.Context(), key)
				given <- key
				releases <- release
			}()
			synctest.Wait()
		}
		canceled, cancel := context.WithCancel(t.Context())
		go func() {
			if _, ok := f.Acquire(canceled, "gone", nil); ok {
				t.Error("a slot was given to one who was not waiting any more")
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		for i, want := range []string{"few", "many", "few", "many"} {
			switch i {
			case 0:
				first()
			case 1:
				second()
			default:
				(<-releases)()
			}
			synctest.Wait()
			if got := <-given; got != want {
				t.Errorf("slot %d was given to %s, want %s", i, got, want)
			}
		}
		for range 2 {
			(<-releases)()
		}
		acquire(t.Context(), "last")()
	})
}

// TestFairSaysThatItWaits: only who has to wait is in the queue, and leaves it with a slot or without one.
func TestFairSaysThatItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFair(1)
		var calls []bool
		queued := func(waits bool) { calls = append(calls, waits) }
		release, ok := f.Acquire(t.Context(), "a", queued)
		if !ok || len(calls) > 0 {
			t.Errorf("a free slot: %v, %v", ok, calls)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, end := range []func(){cancel, release} {
			calls = nil
			ended := make(chan bool)
			go func() {
				_, ok := f.Acquire(ctx, "b", queued)
				ended <- ok
			}()
			synctest.Wait()
			if !slices.Equal(calls, []bool{true}) {
				t.Errorf("while it waits: %v", calls)
			}
			end()
			<-ended
			if !slices.Equal(calls, []bool{true, false}) {
				t.Errorf("afterwards: %v", calls)
			}
			ctx = t.Context()
		}
	})
}
