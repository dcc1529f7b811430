// Package inprogress counts what a hub is about to do for the objects of all clusters, which share its processors. By it controllers decide
// for how long they write nothing of what passes or changes soon. It does not know what that is.
package inprogress

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Delay is how long the hub writes nothing of what passes or changes soon: least, and more for each object that it has in hand beside it.
//
// While each object takes a time t, and r of them are done in a second, r*t are in hand. Nothing is written of them as long as the delay is
// longer than t, which it is where each is longer than 1/r: from 2.5 objects a second on, which two slow processors do.
func Delay(least time.Duration, inHand int) time.Duration {
	const most, each = time.Minute, 400 * time.Millisecond
	return min(least+time.Duration(inHand)*each, most)
}

// Counter counts objects of one kind. The zero value counts none.
type Counter struct {
	mu      sync.Mutex
	objects map[client.ObjectKey]struct{}
}

// Others returns how many there are beside an object.
func (c *Counter) Others(except client.ObjectKey) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, in := c.objects[except]; in {
		return len(c.objects) - 1
	}
	return len(c.objects)
}

// Set says whether an object is one of them.
func (c *Counter) Set(object client.ObjectKey, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !is {
		delete(c.objects, object)
		return
	}
	if c.objects == nil {
		c.objects = map[client.ObjectKey]struct{}{}
	}
	c.objects[object] = struct{}{}
}
