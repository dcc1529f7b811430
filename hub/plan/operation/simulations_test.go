package operation

import (
	"flag"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	simulate     = flag.Duration("simulate", 0, "how long to run random simulations (default: a fixed number of them)")
	simulateSeed = flag.Int64("simulate-seed", -1, "the only random simulation to run; its log is printed")
)

// TestRandomSimulations checks that in each simulation no rule is broken, every operation ends, and the cluster settles.
func TestRandomSimulations(t *testing.T) {
	if *simulateSeed >= 0 {
		s := newRandomSimulation(uint64(*simulateSeed))
		s.logging = true
		s.run()
		t.Fatalf("%s\n%s", strings.Join(s.events, "\n"), strings.Join(s.faults, "\n"))
	}
	// Without -simulate, the seeds are always the same, so that the test fails because of a change only.
	simulations, until := uint64(500), time.Time{}
	if *simulate > 0 {
		simulations, until = math.MaxUint64, time.Now().Add(*simulate)
	}
	var next, broken atomic.Uint64
	broken.Store(math.MaxUint64)
	var all sync.WaitGroup
	var mutex sync.Mutex
	ended := map[string]int{}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= min(simulations, broken.Load()) || !until.IsZero() && time.Now().After(until) {
					return
				}
				s := newRandomSimulation(seed)
				s.run()
				mutex.Lock()
				for phase, n := range s.endedOfKind {
					ended[phase] += n
				}
				mutex.Unlock()
				if len(s.faults) == 0 {
					continue
				}
				for first := broken.Load(); seed < first && !broken.CompareAndSwap(first, seed); first = broken.Load() {
				}
			}
		})
	}
	all.Wait()
	if seed := broken.Load(); seed != math.MaxUint64 {
		t.Fatalf("simulation %d (-simulate-seed %d):\n%s", seed, seed, replay(seed))
	}
	t.Logf("ran %d simulations; operations have ended: %v", min(simulations, next.Load()), ended)
}

// replay runs a simulation again and returns the end of its log until the first fault.
func replay(seed uint64) string {
	s := newRandomSimulation(seed)
	s.logging = true
	s.run()
	i := slices.IndexFunc(s.events, func(e string) bool { return strings.Contains(e, "FAULT") })
	events := s.events[:i+1]
	return strings.Join(append(events[max(0, len(events)-60):], s.faults[:min(len(s.faults), 12)]...), "\n")
}
