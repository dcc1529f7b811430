// Package wait waits in unit tests for what another goroutine does. Tests with a hub use testenv.Until.
package wait

import (
	"testing"
	"time"
)

// Until waits until the condition is true, and returns how long that took. It fails the test after the given time; what names the
// condition.
func Until(t testing.TB, within time.Duration, what string, condition func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !condition() {
		if time.Since(begin) > within {
			t.Fatalf("timed out after %s waiting for: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}
