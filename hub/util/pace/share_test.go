package pace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestShare: what takes a second is done once in ten, and what takes no time at any time.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Share
		fault := errors.New("fault")
		do := func(takes time.Duration) (time.Duration, error) {
			return s.Do(func() error { time.Sleep(takes); return fault })
		}
		for _, step := range []struct{ after, takes, wait time.Duration }{
			{0, 0, 0}, {0, 0, 0}, {0, time.Second, 0}, {0, time.Second, 9 * time.Second}, {8 * time.Second, 0, time.Second},
			{time.Second, time.Hour, 0}, {0, 0, time.Minute}, {time.Minute, 0, 0},
		} {
			time.Sleep(step.after)
			wait, err := do(step.takes)
			if wait != step.wait || (err == nil) != (wait > 0) {
				t.Errorf("%+v: wait %s, %v", step, wait, err)
			}
		}
	})
}
