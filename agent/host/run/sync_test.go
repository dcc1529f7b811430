package run

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSyncThatHangs has a file system that does not answer. It is waited for until the limit, or until the process is to stop.
func TestSyncThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		sync := func() { <-answers }
		started := time.Now()
		if endsWithin(time.Minute, nil, sync) || time.Since(started) != time.Minute {
			t.Errorf("given up after %s", time.Since(started))
		}
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		started = time.Now()
		if endsWithin(time.Minute, stop, sync) || time.Since(started) != time.Second {
			t.Errorf("given up after %s, the process was to stop after a second", time.Since(started))
		}
		close(answers)
		if !endsWithin(time.Minute, nil, sync) {
			t.Error("given up at once")
		}
	})
}
