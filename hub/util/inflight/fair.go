package inflight

import (
	"context"
	"slices"
	"sync"
)

// Fair has a number of slots that are waited for. One that becomes free goes to the caller who holds the fewest, and among those to the one
// who has waited longest: whoever asks for very many does not make others wait for all of them.
type Fair struct {
	mu   sync.Mutex
	free int
	// byKey counts the slots that each key holds; keys that hold none are not in it.
	byKey map[string]int
	// waiting are in the order in which they came. There are none while a slot is free.
	waiting []*waiter
}

type waiter struct {
	key string
	// given is closed when the slot is the waiter's.
	given chan struct{}
}

// NewFair returns a Fair of so many slots.
func NewFair(slots int) *Fair { return &Fair{free: slots, byKey: map[string]int{}} }

// Acquire waits for a slot for key; ok is false if ctx ends first. The caller must call release once. If it has to wait, it calls queued
// with true, and with false when it waits no longer; queued may be nil.
func (f *Fair) Acquire(ctx context.Context, key string, queued func(bool)) (release func(), ok bool) {
	w := f.enter(key)
	select {
	case <-w.given:
		return func() { f.release(key) }, true
	default:
	}
	if queued != nil {
		queued(true)
		defer queued(false)
	}
	select {
	case <-w.given:
		return func() { f.release(key) }, true
	case <-ctx.Done():
	}
	f.mu.Lock()
	i := slices.Index(f.waiting, w)
	if i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	f.mu.Unlock()
	if i < 0 { // it was given at the same time
		f.release(key)
	}
	return nil, false
}

func (f *Fair) enter(key string) *waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &waiter{key, make(chan struct{})}
	if f.free > 0 {
		f.free--
		f.give(w)
	} else {
		f.waiting = append(f.waiting, w)
	}
	return w
}

// give gives a slot away. mu is held.
func (f *Fair) give(w *waiter) {
	f.byKey[w.key]++
	close(w.given)
}

func (f *Fair) release(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey[key]--; f.byKey[key] == 0 {
		delete(f.byKey, key)
	}
	if len(f.waiting) == 0 {
		f.free++
		return
	}
	next := slices.MinFunc(f.waiting, func(a, b *waiter) int { return f.byKey[a.key] - f.byKey[b.key] })
	f.waiting = slices.DeleteFunc(f.waiting, func(w *waiter) bool { return w == next })
	f.give(next)
}
