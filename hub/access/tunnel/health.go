package tunnel

import (
	"time"

	"github.com/drover-dev/drover/tunnel/session"
)

const (
	// checkInterval is the time between checks of all sessions.
	checkInterval = time.Second
	// probeInterval is the time between pings of a session that is used. An agent that does not answer is known to be gone before the next
	// dial.
	probeInterval = 250 * time.Millisecond
	// pingInterval is the time between pings of a healthy session, which measure its round trip.
	pingInterval = 30 * time.Second
)

// watch checks the sessions as long as there are any.
func (m *Manager) watch() {
	ticker := time.NewTicker(checkInterval)
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

// check pings agents that sent nothing for a while, and ends the sessions of those that do not answer. Agents ping every few seconds, so
// most are never pinged. A session that has a sibling gets less time, because new streams can use the other one.
func (m *Manager) check() {
	m.mu.RLock()
	all := make([][]*agentSession, 0, len(m.keys))
	for _, sessions := range m.keys {
		all = append(all, sessions)
	}
	m.mu.RUnlock()
	for _, sessions := range all {
		ask, dead := m.limits.Ping, m.limits.Timeout
		if len(sessions) > 1 {
			ask, dead = checkInterval, m.limits.SiblingTimeout
		}
		for _, s := range sessions {
			silence := s.Silence()
			switch {
			case silence >= dead:
				s.Fail(session.Ended(endSilent, "no message from the agent for %s", silence.Round(time.Second)))
			case silence >= ask, s.SincePing() >= pingInterval:
				s.Ping()
			}
		}
	}
}
