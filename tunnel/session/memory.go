package session

const (
	// spared is how much memory a session may always use, so that those that fill the process do not harm the rest.
	spared = 256 << 10
	// usedUp is why streams are ended whose session, or all sessions together, hold too much.
	usedUp = "the memory for data of tunnels that waits to be read is used up"
)

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

// full reports whether the session may use no more memory.
func (s *Session) full() bool { return s.used.Load() > s.shared.limits.Session }

// fullest is the stream that holds most of what can be dropped; nil if there is none.
func (s *Session) fullest() *stream {
	var fullest *stream
	most := 0
	for _, st := range s.all() {
		st.mu.Lock()
		if st.received.held > most && !st.dropped {
			fullest, most = st, st.received.held
		}
		st.mu.Unlock()
	}
	return fullest
}

// shed ends a stream, if it has not ended, and drops what waits in it.
func (s *Session) shed(st *stream, why string) {
	s.violation("a stream was ended: " + why)
	s.shared.observer.Shed()
	err := &LimitError{What: why}
	st.end(err, true)
	st.drop(err)
}

// shed ends streams while all sessions together hold too much: the fullest stream of the session that holds most, whichever session
// receives. Nobody waits for it: while one goroutine sheds, others go on.
func (s *Shared) shed() {
	if s.used.Load() <= s.limits.Process || !s.shedding.TryLock() {
		return
	}
	defer s.shedding.Unlock()
	for s.used.Load() > s.limits.Process {
		largest := s.largest()
		if largest == nil {
			return
		}
		fullest := largest.fullest()
		if fullest == nil {
			return
		}
		largest.shed(fullest, usedUp)
	}
}

// largest is the session that holds most; nil if none holds more than a session may always use.
func (s *Shared) largest() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var largest *Session
	most := int64(spared)
	for session := range s.sessions {
		if used := session.used.Load(); used > most {
			largest, most = session, used
		}
	}
	return largest
}
