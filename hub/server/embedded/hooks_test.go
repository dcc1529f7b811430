package embedded

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, attempts := time.Now(), 0
		retryHook(t.Context(), func() error {
			if attempts++; attempts < 3 {
				return errors.New("timed out waiting for the condition")
			}
			return nil
		})
		if attempts != 3 || time.Since(begin) != 2*hookRetryDelay {
			t.Errorf("%d attempts in %s", attempts, time.Since(begin))
		}

		ctx, cancel := context.WithCancel(t.Context())
		attempts = 0
		retryHook(ctx, func() error {
			attempts++
			cancel()
			return errors.New("the server is stopped")
		})
		if attempts != 1 {
			t.Errorf("%d attempts after the server was stopped", attempts)
		}
	})
}
