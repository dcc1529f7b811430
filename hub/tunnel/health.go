package tunnel

import (
	"time"
)

const (
	// look is how often sessions are looked at.
	look = time.Second
	// measure is how often a session that is well is pinged, so that its round trip is known.
	measure = 30 * time.Second
)

// watch looks after the sessions for as long as there are any.
func (m *Manager) watch() {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for range ticker.C {
		m.mu.Lock()
		if m.total == 0 {
			m.watched = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		m.check()
	}
}

// check asks silent agents for a sign of life, and ends the sessions of those that did not give one. Agents ping every few seconds, so that
// most are never asked. A session that has a sibling is watched more closely, for new streams can use the other one.
func (m *Manager) check() {
	m.mu.RLock()
	all := make([][]*session, 0, len(m.keys))
	for _, sessions := range m.keys {
		all = append(all, sessions)
	}
	m.mu.RUnlock()
	for _, sessions := range all {
		ask, dead := m.limits.Ping, m.limits.Dead
		if len(sessions) > 1 {
			ask, dead = look, m.limits.Deserted
		}
		for _, s := range sessions {
			silence := s.silence()
			switch {
			case silence >= dead:
				s.fail(ended(endSilent, "nothing was heard from the agent for %s", silence.Round(time.Second)))
			case silence >= ask, sinceStart()-time.Duration(s.measured.Load()) >= measure:
				s.measured.Store(int64(sinceStart()))
				s.ping()
			}
		}
	}
}
