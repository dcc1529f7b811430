package tunnel

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// oddities are what an agent does that it should not. The first is logged, the others are counted, so that an agent can not fill the log.
type oddities struct {
	mu      sync.Mutex
	count   int
	answers *rate.Limiter
}

// answer tells whether one more answer may be given.
func (o *oddities) answer() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers == nil {
		o.answers = rate.NewLimiter(rate.Every(100*time.Millisecond), 50)
	}
	return o.answers.Allow()
}

func (s *session) odd(what string) {
	s.oddities.mu.Lock()
	s.oddities.count++
	first := s.oddities.count == 1
	s.oddities.mu.Unlock()
	s.manager.metrics.oddities.Inc()
	if first {
		s.log.Info("An agent does what it should not; the rest of this session is only counted", "what", what)
	}
}
