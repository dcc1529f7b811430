package session

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// violations counts the peer's violations of the protocol. Only the first of a session is reported, so that a peer cannot fill the log.
type violations struct {
	mu      sync.Mutex
	count   int
	answers *rate.Limiter
}

// answer reports whether one more answer may be given.
func (o *violations) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers == nil {
		o.answers = rate.NewLimiter(rate.Every(100*time.Millisecond), 50)
	}
	return o.answers.Allow()
}

func (s *Session) violation(what string) {
	s.violations.mu.Lock()
	s.violations.count++
	first := s.violations.count == 1
	s.violations.mu.Unlock()
	s.shared.observer.Violation()
	if first && s.options.OnViolation != nil {
		s.options.OnViolation(what)
	}
}
