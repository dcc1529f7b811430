package inflight

import (
	"context"
	"testing"
)

// TestNewest: a new request ends the oldest, and is refused only while as many are ending as may go on.
func TestNewest(t *testing.T) {
	n := NewNewest(2)
	var contexts []context.Context
	var releases []func()
	acquire := func(key string, want bool) {
		t.Helper()
		ctx, release, ok := n.Acquire(t.Context(), key)
		if ok != want {
			t.Fatalf("request %d of %s: %t, want %t", len(contexts), key, ok, want)
		}
		if ok {
			contexts, releases = append(contexts, ctx), append(releases, release)
		}
	}
	for range 4 {
		acquire("a", true)
	}
	acquire("a", false)
	acquire("b", true)
	for i, ended := range []bool{true, true, false, false, false} {
		if got := contexts[i].Err() != nil; got != ended {
			t.Errorf("request %d has ended: %t, want %t", i, got, ended)
		}
	}
	releases[0]()
	acquire("a", true)
	if contexts[2].Err() == nil || contexts[3].Err() != nil {
		t.Error("a new request ends another one than the oldest")
	}
	for _, release := range releases[1:] {
		release()
	}
	if len(n.byKey) != 0 {
		t.Errorf("keys without requests are kept: %v", n.byKey)
	}
}
