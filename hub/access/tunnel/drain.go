package tunnel

import (
	"context"
	"time"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/session"
)

// Drain refuses new sessions from now on and ends those there are at an even pace, so that their agents come back to other replicas one
// after the other. A key that has several sessions loses its second one only after every key has lost its first. The end of ctx ends the
// rest at once. Drain returns when all agents have answered that their sessions end, or have had a moment to do so.
func (m *Manager) Drain(ctx context.Context, over time.Duration) {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	sessions := m.roundRobin()
	if len(sessions) == 0 {
		return
	}
	pace := time.NewTicker(max(over/time.Duration(len(sessions)), time.Microsecond))
	defer pace.Stop()
	for _, s := range sessions {
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
		s.Close(session.Ended(endDrain, "this replica of the hub is about to stop"), websocket.CloseGoingAway)
	}
	timeout := time.NewTimer(session.CloseGrace)
	defer timeout.Stop()
	for _, s := range sessions {
		select {
		case <-s.gone:
		case <-timeout.C:
			return
		}
	}
}

// roundRobin returns the first session of every key, then the second of those that have one, and so on.
func (m *Manager) roundRobin() []*agentSession {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*agentSession, 0, m.total)
	for round := 0; ; round++ {
		before := len(all)
		for _, sessions := range m.keys {
			if round < len(sessions) {
				all = append(all, sessions[round])
			}
		}
		if len(all) == before {
			return all
		}
	}
}
