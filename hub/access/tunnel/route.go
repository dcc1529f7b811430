package tunnel

import (
	"context"
	"net"
)

// Route is the session that Dial would open a stream in.
type Route struct {
	// Agent of the session.
	Agent Agent
	// Session identifies a session of the key. Idle connections of another session must not be reused: it may be dead.
	Session int64
	// Suspect is true if the agent has not answered a ping. Another replica's session may be better.
	Suspect bool
}

// Route returns the session that Dial would use now, and false if there is none.
func (m *Manager) Route(key string) (Route, bool) { return m.routeOf(m.pick(key)) }

// RouteOf returns the session that DialSession would use now, and false if there is none.
func (m *Manager) RouteOf(key string, session int64) (Route, bool) {
	return m.routeOf(m.pickSession(key, session))
}

func (m *Manager) routeOf(s *agentSession) (Route, bool) {
	if s == nil {
		return Route{}, false
	}
	return Route{Agent: s.agent, Session: s.id(), Suspect: s.Silence() >= m.limits.Ping+m.limits.Suspect || !m.answers(s)}, true
}

// DialSession is Dial through the session of a Route. If that has ended, which is final, it does what Dial does.
func (m *Manager) DialSession(ctx context.Context, key string, session int64, network, address string) (net.Conn, error) {
	return m.dial(ctx, m.pickSession(key, session), key, network, address)
}

// pickSession returns the session of a Route, or what pick chooses if that has ended.
func (m *Manager) pickSession(key string, id int64) *agentSession {
	m.mu.RLock()
	sessions := m.keys[key]
	m.mu.RUnlock()
	for _, s := range sessions {
		if s.id() == id && !s.HasEnded() {
			return s
		}
	}
	return m.pick(key)
}
