package tunnel

import (
	"slices"

	"github.com/gorilla/websocket"

	"github.com/drover-dev/drover/tunnel/session"
)

// add takes a session in, unless the Manager drains. The oldest sessions of a key that has too many end.
func (m *Manager) add(s *agentSession) bool {
	key := s.agent.Key
	m.mu.Lock()
	if m.draining {
		m.mu.Unlock()
		return false
	}
	others := m.keys[key]
	m.keys[key] = append(slices.Clone(others), s)
	m.total++
	watch := !m.watched
	m.watched = true
	m.mu.Unlock()

	m.metrics.connected.Inc()
	if watch {
		go m.watch()
	}
	if len(others) == 0 {
		m.notify(key)
	}
	// An agent may take a moment to leave, so that there can be several that are to.
	for _, oldest := range others[:max(0, len(others)+1-m.limits.Sessions)] {
		oldest.Close(session.Ended(endLimit, "there are more than %d sessions of this agent's cluster or machine", m.limits.Sessions),
			websocket.CloseTryAgainLater)
	}
	return true
}

func (m *Manager) remove(s *agentSession) {
	key := s.agent.Key
	m.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(m.keys[key]), func(other *agentSession) bool { return other == s })
	if len(rest) == 0 {
		delete(m.keys, key)
	} else {
		m.keys[key] = rest
	}
	m.total--
	m.mu.Unlock()
	if len(rest) == 0 {
		m.notify(key)
	}
}

func (m *Manager) notify(key string) {
	for _, f := range m.changed {
		f(key)
	}
}

// pick chooses the session for a new stream: the newest that responds, or else the one that was heard of last.
func (m *Manager) pick(key string) *agentSession {
	m.mu.RLock()
	sessions := m.keys[key]
	m.mu.RUnlock()
	var best *agentSession
	for _, s := range slices.Backward(sessions) {
		if s.HasEnded() {
			continue
		}
		if s.Silence() < m.limits.Suspect && m.answers(s) {
			return s
		}
		if best == nil || s.Silence() < best.Silence() {
			best = s
		}
	}
	return best
}

// answers reports whether an agent answers pings, or has not been pinged.
func (m *Manager) answers(s *agentSession) bool {
	return s.Unanswered() < m.limits.Unanswered+2*s.RoundTrip()
}

// sessions returns all sessions.
func (m *Manager) sessions() []*agentSession {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*agentSession, 0, m.total)
	for _, sessions := range m.keys {
		all = append(all, sessions...)
	}
	return all
}

func (m *Manager) count() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.total
}

func (m *Manager) isDraining() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.draining
}
