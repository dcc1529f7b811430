package cli

import (
	"context"
	"time"
)

// watchdog tells the service manager twice per interval that the agent lives. It has its goroutine to itself and waits for nothing there: it
// reads no file, and what it says in the log is said by another goroutine, since a log waits for the disk too.
func (s *service) watchdog(ctx context.Context, stopped <-chan struct{}) {
	ticker := time.NewTicker(s.interval / 2)
	defer ticker.Stop()
	dead := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-stopped:
			return
		case now := <-ticker.C:
			alive := s.alive(now)
			switch {
			case alive:
				s.notify("WATCHDOG=1")
			case !dead:
				go s.log.Error("An executor does not answer any more, the service manager will start the agent anew")
			}
			dead = !alive
		}
	}
}

// alive tells whether every engine is; one that hangs makes the machine deaf to its hub, so it is better started anew. A disk that hangs is no
// such case: each engine knows for how long that may hold it up.
func (s *service) alive(now time.Time) bool {
	for _, w := range s.all() {
		if !w.Alive(now) {
			return false
		}
	}
	return true
}
