package tunnel

// Route is the session that Dial would open a stream in.
type Route struct {
	Agent Agent
	// Session tells sessions of a key apart. Whoever keeps connections for later leaves those of another session alone: it may be dead.
	Session int64
	// Doubtful is true where the agent has not answered when it was asked for a sign of life. Another replica's session may be better.
	Doubtful bool
}

// Route returns the way that Dial would take now; false where there is none.
func (m *Manager) Route(key string) (Route, bool) {
	s := m.pick(key)
	if s == nil {
		return Route{}, false
	}
	return Route{Agent: s.agent, Session: s.opened.UnixNano(), Doubtful: s.silence() >= m.limits.Ping+m.limits.Doubt}, true
}
