package tunnel

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// violations counts an agent's violations of the protocol. The first of a session is logged, so that an agent cannot fill the log.
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

func (s *session) violation(what string) {
	s.violations.mu.Lock()
	s.violations.count++
	first := s.violations.count == 1
	s.violations.mu.Unlock()
	s.manager.metrics.violations.Inc()
	if first {
		s.log.Info("Agent violated the tunnel protocol; further violations of this session are only counted", "what", what)
	}
}
