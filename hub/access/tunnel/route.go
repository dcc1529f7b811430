package tunnel

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
func (m *Manager) Route(key string) (Route, bool) {
	s := m.pick(key)
	if s == nil {
		return Route{}, false
	}
	return Route{Agent: s.agent, Session: s.opened.UnixNano(), Suspect: s.Silence() >= m.limits.Ping+m.limits.Suspect || !m.answers(s)}, true
}
