package gateway

import "sync"

// notifier wakes those who wait for something that has a name. A wake-up only says "look again".
type notifier struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]struct{}
}

func newNotifier() *notifier { return &notifier{waiting: map[string]map[chan struct{}]struct{}{}} }

// subscribe returns a channel that receives after each change of name, and what ends that.
func (n *notifier) subscribe(name string) (<-chan struct{}, func()) {
	// One wake-up that is not yet consumed stands for all that follow it.
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting[name] == nil {
		n.waiting[name] = map[chan struct{}]struct{}{}
	}
	n.waiting[name][c] = struct{}{}
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiting[name], c)
		if len(n.waiting[name]) == 0 {
			delete(n.waiting, name)
		}
	}
}

func (n *notifier) notify(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.waiting[name] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
