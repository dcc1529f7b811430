package plansecrets

import (
	"testing"
	"time"
)

func TestProgressShownAfter(t *testing.T) {
	for inProgress, want := range map[int]time.Duration{0: 3 * time.Second, 20: 11 * time.Second, 100: 43 * time.Second, 10000: time.Minute} {
		if got := ProgressShownAfter(inProgress); got != want {
			t.Errorf("with %d plans in progress: %s, want %s", inProgress, got, want)
		}
	}
}
