package tunnel

import (
	"slices"

	"github.com/gorilla/websocket"
)

// add takes a session in, unless the Manager drains. The oldest sessions of a key that has too many end.
func (m *Manager) add(s *session) bool {
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
		oldest.close(ended(endLimit, "there are more than %d sessions of this agent's cluster or machine", m.limits.Sessions),
			websocket.CloseTryAgainLater)
	}
	return true
}

func (m *Manager) remove(s *session) {
	key := s.agent.Key
	m.mu.Lock()
	rest := slices.DeleteFunc(slices.Clone(m.keys[key]), func(other *session) bool { return other == s })
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

// pick chooses the session for a new stream: the newest that was heard of lately, or else the one that was heard of last.
func (m *Manager) pick(key string) *session {
	m.mu.RLock()
	sessions := m.keys[key]
	m.mu.RUnlock()
	var best *session
	for _, s := range slices.Backward(sessions) {
		if s.hasEnded() {
			continue
		}
		if s.silence() < m.limits.Suspect {
			return s
		}
		if best == nil || s.silence() < best.silence() {
			best = s
		}
	}
	return best
}

func (s *session) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}

// sessions returns all sessions.
func (m *Manager) sessions() []*session {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*session, 0, m.total)
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
