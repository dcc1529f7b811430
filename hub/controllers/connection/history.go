package connection

import (
	"slices"
	"sync"
	"time"
)

// lossesFor is how long a loss is remembered.
const lossesFor = 5 * time.Minute

// history is what this hub has seen of clusters' sessions since it began to look.
type history struct {
	mu      sync.Mutex
	started time.Time
	byName  map[string]*past
}

// past is the history of one cluster.
type past struct {
	// since is since when it is connected, or missed where that is set; zero where it was not seen to be connected yet.
	since, missed time.Time
	// losses are the times at which it was found missing after it was connected.
	losses []time.Time
}

func (h *history) start(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started, h.byName = now, map[string]*past{}
}

// look notes whether a cluster is connected now, and fills in what facts need to know of the time before.
func (h *history) look(name string, f *facts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.byName[name]
	if p == nil {
		p = &past{}
		h.byName[name] = p
	}
	switch {
	case f.connected && (p.since.IsZero() || !p.missed.IsZero()):
		p.since, p.missed = f.now, time.Time{}
	case !f.connected && p.missed.IsZero():
		p.missed = f.now
		if !p.since.IsZero() {
			p.losses = append(p.losses, f.now)
		}
	}
	p.losses = slices.DeleteFunc(p.losses, func(t time.Time) bool { return f.now.Sub(t) > lossesFor })
	f.connectedSince, f.missedSince, f.losses = p.since, p.missed, len(p.losses)
	if p.since.IsZero() {
		f.started = h.started
	}
}

// forget is for a cluster that is gone.
func (h *history) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byName, name)
}
