package simulate

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

func TestRun(t *testing.T) {
	var seeds [50]atomic.Int32
	Run(t, uint64(len(seeds)), func(seed uint64, _ bool) (faults, log []string) {
		seeds[seed].Add(1)
		return nil, nil
	})
	for seed := range seeds {
		if n := seeds[seed].Load(); n != 1 {
			t.Errorf("seed %d has run %d times", seed, n)
		}
	}
}

// TestDescribe: of a thousand simulations with faults some are listed, and of the first one the end is shown.
func TestDescribe(t *testing.T) {
	broken := map[uint64]string{}
	for seed := range uint64(1000) {
		broken[7+seed] = fmt.Sprintf("fault of %d\nand more", 7+seed)
	}
	got := describe(broken, func(seed uint64, logging bool) (faults, log []string) {
		if seed != 7 || !logging {
			t.Errorf("seed %d is replayed, logging: %v", seed, logging)
		}
		for i := range 500 {
			log = append(log, fmt.Sprintf("event %d", i))
		}
		return []string{"the fault"}, log
	})
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if lines[0] != "7: fault of 7" || len(lines) != maxSeeds+2+maxLines+1 {
		t.Errorf("%d lines, the first is %s", len(lines), lines[0])
	}
	if end := strings.Join(lines[len(lines)-2:], "\n"); end != "event 499\nthe fault" {
		t.Errorf("it ends with %s", end)
	}
}
