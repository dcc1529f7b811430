// Package gctuner sets the target of Go's garbage collector (GOGC) by how busy the program is: a program that holds much and allocates
// little collects early and stays small, and one that allocates much takes some more memory instead of collecting all the time.
package gctuner

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Options say how much memory is traded for CPU time.
type Options struct {
	// Percent is the target at rest, in the unit of GOGC: percent of the live heap.
	Percent int
	// BusyLeast and BusyMost are the least and the greatest target while the program is busy. Between them, the heap may grow to BusyHeap
	// bytes.
	BusyLeast, BusyMost int
	BusyHeap            uint64
	// LargeHeap bytes are a second limit: beyond BusyHeap, the heap of a busy program may grow to three times what is in use, but not beyond
	// this. 0 is no second limit.
	LargeHeap uint64
	// Busy is how many bytes a second a busy program allocates at least.
	Busy uint64
}

// Start sets the target now and after every collection, for as long as the program runs. A limit set with GOMEMLIMIT goes before the
// target.
func Start(opts Options) {
	t := &tuner{Options: opts, usage: readUsage, set: func(percent int) { debug.SetGCPercent(percent) }, release: debug.FreeOSMemory}
	t.set(opts.Percent)
	t.percent = opts.Percent
	t.last = t.usage()
	runtime.SetFinalizer(&sentinel{t}, (*sentinel).collected)
}

// sentinel is garbage from the start, so that its finalizer runs after each collection. The runtime has no other signal for that.
type sentinel struct{ *tuner }

func (s *sentinel) collected() {
	s.tune()
	runtime.SetFinalizer(s, (*sentinel).collected)
}

// usage is what the runtime tells of the heap at one time.
type usage struct {
	at time.Time
	// allocated are all bytes that were ever allocated, live those that the last collection has found in use.
	allocated, live uint64
}

type tuner struct {
	Options
	usage   func() usage
	set     func(percent int)
	release func()

	mu      sync.Mutex
	last    usage
	percent int
	// rest sets the target at rest when no collection has come for a while, and returns memory to the system: the next collection might be
	// minutes away.
	rest *time.Timer
}

// restAfter is how long after its last collection a program counts as busy, whatever it allocates.
const restAfter = 10 * time.Second

// tune sets the target for the next collection by what was allocated since the last.
func (t *tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.usage()
	percent := t.Percent
	if t.busy(now) && now.live > 0 {
		percent = t.busyPercent(now.live)
	}
	t.last = now
	t.use(percent)
	if t.rest != nil {
		t.rest.Stop()
	}
	if percent > t.Percent {
		t.rest = time.AfterFunc(restAfter, func() { t.restSince(now.at) })
	}
}

func (o *Options) busyPercent(live uint64) int {
	heap := max(o.BusyHeap, min(3*live, o.LargeHeap))
	return min(max(o.BusyLeast, int(heap*100/live)-100), o.BusyMost)
}

// busy returns whether the program has allocated as much as a busy one since the last collection.
func (t *tuner) busy(now usage) bool {
	return float64(now.allocated-t.last.allocated) >= now.at.Sub(t.last.at).Seconds()*float64(t.Busy)
}

// restSince begins a rest if the last collection was at this time, unless the program is still busy: then it looks again later.
func (t *tuner) restSince(collected time.Time) {
	t.mu.Lock()
	last := t.last.at.Equal(collected)
	resting := last && !t.busy(t.usage())
	if last && !resting {
		t.rest = time.AfterFunc(restAfter, func() { t.restSince(collected) })
	}
	if resting {
		t.use(t.Percent)
	}
	t.mu.Unlock()
	if resting {
		t.release()
	}
}

func (t *tuner) use(percent int) {
	if percent != t.percent {
		t.set(percent)
		t.percent = percent
	}
}

func readUsage() usage {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return usage{at: time.Now(), allocated: samples[0].Value.Uint64(), live: samples[1].Value.Uint64()}
}
