// Package gctuner sets the target of Go's garbage collector (GOGC) by how busy the program is: a program that holds much and allocates
// little collects early and stays small, and one that allocates much takes some more memory instead of collecting all the time. What was
// taken and cannot be returned, since objects in use are scattered over it, is used before the next collection.
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
	// Percent is the target at rest, in the unit of GOGC: percent of the live heap. It is more where half of what is free between objects in
	// use is more: that memory stays with the program, filled or not.
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
	// StartMost is the greatest target until Started is closed. What a start makes stays, scattered over all of the memory that it has used,
	// and Go's heap has no compaction: of that memory, what is free between objects in use is not returned to the system. A nil channel
	// is a program that has started.
	StartMost int
	Started   <-chan struct{}
}

// Start sets the target now and after every collection, for as long as the program runs. A limit set with GOMEMLIMIT goes before the
// target.
func Start(opts Options) {
	t := &tuner{Options: opts, usage: readUsage, set: func(percent int) { debug.SetGCPercent(percent) }, release: release}
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
	// unused are bytes that are free between objects, once all garbage is swept.
	unused uint64
}

type tuner struct {
	Options
	usage   func() usage
	set     func(percent int)
	release func()

	mu      sync.Mutex
	last    usage
	percent int
	// looked is the usage at the last collection of a busy program, or at the last look of settle after it.
	looked usage
	// restHeap is what the heap may grow to at rest at least, in bytes.
	restHeap uint64
	// lastBusy is the last collection of a busy program. rest ends its time when no other follows, and returns memory to the system: the next
	// collection might be minutes away.
	lastBusy time.Time
	rest     *time.Timer
}

// restAfter is how long after its last collection a program counts as busy, whatever it allocates.
const restAfter = 10 * time.Second

// tune sets the target for the next collection by what was allocated since the last.
func (t *tuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.usage()
	busy := t.busy(t.last, now) && now.live > 0
	t.last = now
	if !busy {
		t.use(t.restPercent(now.live))
		return
	}
	t.use(t.busyPercent(now.live))
	t.lastBusy, t.looked = now.at, now
	if t.rest != nil {
		t.rest.Stop()
	}
	t.rest = time.AfterFunc(restAfter, t.settle)
}

func (o *Options) busyPercent(live uint64) int {
	heap, most := max(o.BusyHeap, min(3*live, o.LargeHeap)), o.BusyMost
	if o.starts() {
		most = min(most, o.StartMost)
	}
	return min(max(o.BusyLeast, int(heap*100/live)-100), most)
}

func (o *Options) starts() bool {
	if o.Started == nil {
		return false
	}
	select {
	case <-o.Started:
		return false
	default:
		return true
	}
}

// restPercent is the target at rest with so much in use.
func (t *tuner) restPercent(live uint64) int {
	if live == 0 || t.restHeap <= live {
		return t.Percent
	}
	return max(t.Percent, int((t.restHeap-live)*100/live))
}

// busy returns whether the program has allocated as much as a busy one between two times.
func (o *Options) busy(from, to usage) bool {
	return float64(to.allocated-from.allocated) >= to.at.Sub(from.at).Seconds()*float64(o.Busy)
}

// settle begins a rest, unless the program is still busy: then it looks again later.
func (t *tuner) settle() {
	if !t.resting() {
		return
	}
	t.release() // collects all garbage, and sweeps it
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.usage()
	t.restHeap = now.live + now.unused/2
	t.use(t.restPercent(now.live))
}

// release returns memory to the system. The pages of the program may stay: the kernel drops them when it needs them.
func release() {
	debug.FreeOSMemory()
	_ = releaseProgram()
}

func (t *tuner) resting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.usage()
	if now.at.Sub(t.lastBusy) < restAfter {
		return false // a busy collection came in between, with another timer
	}
	// With a large heap, what was allocated since the last collection would count as busy for a minute after the work was done.
	if t.busy(t.looked, now) {
		t.looked = now
		t.rest = time.AfterFunc(restAfter, t.settle)
		return false
	}
	t.use(t.Percent)
	return true
}

func (t *tuner) use(percent int) {
	if percent != t.percent {
		t.set(percent)
		t.percent = percent
	}
}

func readUsage() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples)
	return usage{
		at: time.Now(), allocated: samples[0].Value.Uint64(), live: samples[1].Value.Uint64(), unused: samples[2].Value.Uint64(),
	}
}
