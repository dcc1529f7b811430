package operation

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/hub/testenv/simulate"
)

// TestRandomSimulations checks that in each simulation no rule is broken, every operation ends, and the cluster settles.
func TestRandomSimulations(t *testing.T) {
	var mutex sync.Mutex
	ended := map[string]int{}
	simulate.Run(t, 500, func(seed uint64, logging bool) (faults, log []string) {
		s := newRandomSimulation(seed)
		s.logging = logging
		s.run()
		mutex.Lock()
		defer mutex.Unlock()
		for phase, n := range s.endedOfKind {
			ended[phase] += n
		}
		if i := slices.IndexFunc(s.events, func(e string) bool { return strings.Contains(e, "FAULT") }); i >= 0 {
			return s.faults, s.events[:i+1]
		}
		return s.faults, s.events
	})
	t.Logf("operations have ended: %v", ended)
}
