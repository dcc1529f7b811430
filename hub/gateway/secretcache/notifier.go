package secretcache

import "sync"

// notifier wakes subscribers of a topic. A notification only says that something has changed: subscribers read the new state themselves.
type notifier struct {
	mu          sync.Mutex
	subscribers map[string]map[chan struct{}]struct{}
}

func newNotifier() *notifier { return &notifier{subscribers: map[string]map[chan struct{}]struct{}{}} }

// subscribe returns a channel that receives after each change of topic, and a function that ends the subscription.
func (n *notifier) subscribe(topic string) (<-chan struct{}, func()) {
	// One notification that is not yet consumed stands for all that follow it.
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscribers[topic] == nil {
		n.subscribers[topic] = map[chan struct{}]struct{}{}
	}
	n.subscribers[topic][c] = struct{}{}
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subscribers[topic], c)
		if len(n.subscribers[topic]) == 0 {
			delete(n.subscribers, topic)
		}
	}
}

func (n *notifier) notify(topic string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.subscribers[topic] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
