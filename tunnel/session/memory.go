package session

// spared is how much memory a session may always use, so that those that fill the process do not harm the rest.
const spared = 256 << 10

// account brings the sums up to date with what a stream holds. The stream's lock is held.
func (s *Session) account(st *stream) {
	if change := int64(st.received.held - st.accounted); change != 0 {
		st.accounted = st.received.held
		s.used.Add(change)
		s.shared.used.Add(change)
	}
}

// short reports whether streams should be paused early.
func (s *Session) short() bool {
	limits := &s.shared.limits
	return s.used.Load() > limits.Session/2 || s.shared.used.Load() > limits.Process/2
}

// full reports whether no more memory may be used.
func (s *Session) full() bool {
	limits, used := &s.shared.limits, s.used.Load()
	return used > limits.Session || used > spared && s.shared.used.Load() > limits.Process
}

// fullest is the stream that holds most.
func (s *Session) fullest() *stream {
	var fullest *stream
	most := 0
	for _, st := range s.all() {
		st.mu.Lock()
		if st.received.held > most {
			fullest, most = st, st.received.held
		}
		st.mu.Unlock()
	}
	return fullest
}

// shed ends a stream and forgets what waits in it.
func (s *Session) shed(st *stream, why string) {
	s.violation("a stream was ended: " + why)
	s.shared.observer.Shed()
	st.end(&LimitError{What: why}, true)
	st.drop()
}
