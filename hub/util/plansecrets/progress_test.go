package plansecrets

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestProgressShownAfter(t *testing.T) {
	for inProgress, want := range map[int]time.Duration{0: 3 * time.Second, 20: 4 * time.Second, 200: 13 * time.Second, 10000: time.Minute} {
		if got := ProgressShownAfter(inProgress); got != want {
			t.Errorf("with %d plans in progress: %s, want %s", inProgress, got, want)
		}
	}
}

func TestProgressCountsOthers(t *testing.T) {
	var p Progress
	a, b := client.ObjectKey{Namespace: "ns", Name: "a"}, client.ObjectKey{Namespace: "ns", Name: "b"}
	if got := p.Count(a); got != 0 {
		t.Errorf("none are counted as %d", got)
	}
	p.Set(a, true)
	p.Set(a, true)
	if gotA, gotB := p.Count(a), p.Count(b); gotA != 0 || gotB != 1 {
		t.Errorf("beside a there are %d, beside b %d", gotA, gotB)
	}
	p.Set(b, false)
	p.Set(a, false)
	if got := p.Count(b); got != 0 {
		t.Errorf("%d are left", got)
	}
}
