package remote

import (
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent/engine"
)

var (
	_ engine.Reachability = (*Source)(nil)
	_ engine.Connecting   = (*Source)(nil)
)

// counters are those of Connections while they count.
type counters struct {
	reconnects, registrations, registrationsFailed, authoritiesReplaced atomic.Int64
}

// Connections implements engine.Connecting.
func (s *Source) Connections() engine.Connections {
	return engine.Connections{
		Reconnects: s.counters.reconnects.Load(), Registrations: s.counters.registrations.Load(),
		RegistrationsFailed: s.counters.registrationsFailed.Load(), AuthoritiesReplaced: s.counters.authoritiesReplaced.Load(),
	}
}

// Condition is whether the hub answers, for people.
type Condition struct {
	Connected bool
	// Since is when that began.
	Since time.Time
	// Error is why it does not answer.
	Error string
}

// Condition is that of this moment. Before the first answer or failure nothing is known, and Error is empty.
func (s *Source) Condition() Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.condition
}

// Unreachable implements engine.Reachability.
func (s *Source) Unreachable() (reason string, since time.Time) {
	c := s.Condition()
	if c.Error == "" {
		return "", time.Time{}
	}
	return c.Error, c.Since
}

// answered takes note that the hub has answered.
func (s *Source) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.condition.Connected {
		s.condition = Condition{Connected: true, Since: time.Now()}
	}
}

// failed takes note of why the hub cannot be reached. The time stays that of the first failure in a row.
func (s *Source) failed(err error) {
	s.counters.reconnects.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.condition.Connected || s.condition.Error == "" {
		s.condition.Since = time.Now()
	}
	s.condition.Connected, s.condition.Error = false, err.Error()
}
