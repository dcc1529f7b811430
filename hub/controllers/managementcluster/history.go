package managementcluster

import (
	"slices"
	"sync"
	"time"
)

// history is what this hub has observed of the sessions of clusters since it started to watch them.
type history struct {
	mu      sync.Mutex
	started time.Time
	byName  map[string]*sessionHistory
}

// sessionHistory is the history of one cluster.
type sessionHistory struct {
	// connectedSince is zero until the cluster was seen connected, lostSince while it is.
	connectedSince, lostSince time.Time
	// losses are the times of losses within lossWindow.
	losses []time.Time
}

// observe records whether a cluster is connected now, and sets the inputs that depend on earlier observations. It begins with the first
// reconcile, and not with the controller's sources, which are started in replicas that do not lead, too.
func (h *history) observe(name string, in *connectionInputs) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byName == nil {
		h.started, h.byName = in.now, map[string]*sessionHistory{}
	}
	s := h.byName[name]
	if s == nil {
		s = &sessionHistory{}
		h.byName[name] = s
	}
	switch {
	case in.connected && (s.connectedSince.IsZero() || !s.lostSince.IsZero()):
		s.connectedSince, s.lostSince = in.now, time.Time{}
	case !in.connected && s.lostSince.IsZero():
		s.lostSince = in.now
		if !s.connectedSince.IsZero() {
			s.losses = append(s.losses, in.now)
		}
	}
	s.losses = slices.DeleteFunc(s.losses, func(t time.Time) bool { return in.now.Sub(t) > lossWindow })
	in.connectedSince, in.lostSince, in.losses = s.connectedSince, s.lostSince, len(s.losses)
	if s.connectedSince.IsZero() {
		in.started = h.started
	}
}

// forget is called when the management Cluster is deleted.
func (h *history) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byName, name)
}
