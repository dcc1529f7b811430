package inflight

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestFair: a slot that becomes free goes to the key that holds the fewest, and among those to the one that came first. Who is not waiting
// any more gets none.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFair(2)
		acquire := func(ctx context.Context, key string) func() {
			release, ok := f.Acquire(ctx, key)
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
			if _, ok := f.Acquire(canceled, "gone"); ok {
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
