package ratelimit

import (
	"container/list"
	"time"

	"golang.org/x/time/rate"
)

// table holds buckets by name, in the order of their last use.
type table struct {
	rate  rate.Limit
	burst int
	max   int

	elements map[string]*list.Element
	// order begins with the bucket that was used most recently.
	order *list.List
}

type bucket struct {
	*rate.Limiter
	name string
	used time.Time
}

func newTable(perSecond rate.Limit, burst, most int) *table {
	return &table{rate: perSecond, burst: burst, max: most, elements: map[string]*list.Element{}, order: list.New()}
}

// get returns the bucket of a name, or nil.
func (t *table) get(name string, now time.Time) *rate.Limiter {
	element, found := t.elements[name]
	if !found {
		return nil
	}
	b := element.Value.(*bucket)
	b.used = now
	t.order.MoveToFront(element)
	return b.Limiter
}

// add creates the bucket of a name that has none. A full table drops the least recently used one.
func (t *table) add(name string, now time.Time) *rate.Limiter {
	if t.full() {
		t.remove(t.order.Back())
	}
	b := &bucket{Limiter: rate.NewLimiter(t.rate, t.burst), name: name, used: now}
	t.elements[name] = t.order.PushFront(b)
	return b.Limiter
}

// forget removes buckets that were not used since.
func (t *table) forget(since time.Time) {
	for last := t.order.Back(); last != nil && last.Value.(*bucket).used.Before(since); last = t.order.Back() {
		t.remove(last)
	}
}

func (t *table) remove(element *list.Element) {
	delete(t.elements, element.Value.(*bucket).name)
	t.order.Remove(element)
}

func (t *table) full() bool { return len(t.elements) >= t.max }
