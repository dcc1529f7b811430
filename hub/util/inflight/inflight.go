// Package inflight bounds how many requests are worked on at the same time, in total and for each caller, so that no single caller can use
// up the capacity that all share. It counts in this process only; how often a caller may ask is bounded by package ratelimit.
package inflight

import "sync"

// Limiter has a number of slots. One request holds one slot for as long as it is worked on.
type Limiter struct {
	total, share int

	mu   sync.Mutex
	used int
	// byKey counts the slots that each key holds; keys that hold none are not in it.
	byKey map[string]int
}

// New returns a Limiter of total slots, of which each key may hold share at most.
func New(total, share int) *Limiter {
	return &Limiter{total: total, share: share, byKey: map[string]int{}}
}

// Acquire takes a slot for key and never waits: ok is false if all slots are in use, or key holds its share. The caller must call release
// once.
func (l *Limiter) Acquire(key string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used >= l.total || l.byKey[key] >= l.share {
		return nil, false
	}
	l.used++
	l.byKey[key]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.used--
		if l.byKey[key]--; l.byKey[key] == 0 {
			delete(l.byKey, key)
		}
	}, true
}
