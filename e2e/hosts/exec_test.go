package hosts

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// exclusive is a writer that notices two writes at a time.
type exclusive struct {
	writing atomic.Int32
	both    atomic.Bool
	bytes   int
}

func (e *exclusive) Write(p []byte) (int, error) {
	if e.writing.Add(1) > 1 {
		e.both.Store(true)
	}
	time.Sleep(time.Microsecond) // another goroutine runs
	e.bytes += len(p)
	e.writing.Add(-1)
	return len(p), nil
}

func TestSerialWriter(t *testing.T) {
	to := &exclusive{}
	w := &serialWriter{to: to}
	var streams sync.WaitGroup
	for range 2 {
		streams.Go(func() {
			for range 100 {
				if n, err := w.Write([]byte("line\n")); n != 5 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
	streams.Wait()
	if to.both.Load() || to.bytes != 1000 {
		t.Errorf("two writes at a time: %t; %d bytes", to.both.Load(), to.bytes)
	}
}
