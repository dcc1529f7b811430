// Package simulate runs random simulations in unit tests: many seeds, on all processors. What is simulated is the test's.
package simulate

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	duration = flag.Duration("simulate", 0, "how long to run random simulations (default: a fixed number of them)")
	from     = flag.Uint64("simulate-from", 0, "the first random simulation to run with -simulate")
	only     = flag.Int64("simulate-seed", -1, "the only random simulation to run; its log is printed")
)

// The most seeds, faults and lines of the log that a failure prints.
const (
	maxSeeds  = 40
	maxFaults = 12
	maxLines  = 100
)

// collectAt is how far the heap may grow, in percent, until garbage is collected: simulations keep a few megabytes and make gigabytes of
// garbage, so that most of their time would go into collecting it.
const collectAt = 1600

// init counts for all tests of a package that has simulations.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// Run runs simulations, each with another seed, and fails if any has faults; it then prints the log of the first of them. Without flags the
// seeds are always the same, so that the test fails because of a change only. run is called by several goroutines. It returns the rules
// that were broken, and with logging set what happened until the first was, both as lines; the same seed gives the same.
func Run(t *testing.T, simulations uint64, run func(seed uint64, logging bool) (faults, log []string)) {
	t.Helper()
	if *only >= 0 {
		faults, log := run(uint64(*only), true)
		t.Fatalf("%s\n%s", strings.Join(log, "\n"), strings.Join(faults, "\n"))
	}
	first, end, until := uint64(0), simulations, time.Time{}
	if *duration > 0 {
		first, end, until = *from, math.MaxUint64, time.Now().Add(*duration)
	}
	var next, count atomic.Uint64
	next.Store(first)
	var all sync.WaitGroup
	var mutex sync.Mutex
	broken := map[uint64]string{}
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= end || !until.IsZero() && time.Now().After(until) {
					return
				}
				faults, _ := run(seed, false)
				count.Add(1)
				if len(faults) > 0 {
					mutex.Lock()
					broken[seed] = faults[0]
					mutex.Unlock()
				}
			}
		})
	}
	all.Wait()
	if len(broken) > 0 {
		t.Fatalf("%d of %d simulations from %d on have faults:\n%s", len(broken), count.Load(), first, describe(broken, run))
	}
	t.Logf("ran %d simulations from %d on", count.Load(), first)
}

// describe lists the simulations with faults, and shows the end of the first one.
func describe(broken map[uint64]string, run func(uint64, bool) (faults, log []string)) string {
	var text strings.Builder
	seeds := slices.Sorted(maps.Keys(broken))
	for _, seed := range seeds[:min(len(seeds), maxSeeds)] {
		fmt.Fprintf(&text, "%d: %s\n", seed, strings.SplitN(broken[seed], "\n", 2)[0])
	}
	faults, log := run(seeds[0], true)
	fmt.Fprintf(&text, "\nsimulation %d (-simulate-seed %d):\n", seeds[0], seeds[0])
	for _, line := range append(log[max(0, len(log)-maxLines):], faults[:min(len(faults), maxFaults)]...) {
		text.WriteString(line + "\n")
	}
	return text.String()
}
