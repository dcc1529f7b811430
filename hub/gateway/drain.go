package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/hub/peers"
)

var errDraining = later(2*time.Second, "this replica of the hub is stopping, another one answers")

// drainState is how a Server stops in the presence of other replicas: first it is not well any more, so that load balancers leave it out, then
// what lasts long moves away little by little, and only then it stops.
type drainState struct {
	unready atomic.Bool
	// begun is closed, once within is set, when what lasts long has to go.
	begun  chan struct{}
	within time.Duration

	mu      sync.Mutex
	streams int
	// idle is closed when there are no streams; nil as long as nobody waits.
	idle chan struct{}
}

// Unready makes /healthz fail from now on. Everything is served as before.
func (s *Server) Unready() { s.drain.unready.Store(true) }

// Drain ends the watches of plans, each at some time within the given one, so that machines do not all come to the other replicas at once.
// No new ones begin. Whoever else asks is answered, and told to make a new connection, which leads elsewhere. It must be called once only.
func (s *Server) Drain(within time.Duration) {
	s.drain.within = within
	close(s.drain.begun)
}

// WaitStreams returns when no request is being answered by a handler that is mounted, or ctx ends.
func (s *Server) WaitStreams(ctx context.Context) {
	s.drain.mu.Lock()
	idle := make(chan struct{})
	if s.drain.streams == 0 {
		close(idle)
	} else {
		s.drain.idle = idle
	}
	s.drain.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (d *drainState) draining() bool {
	select {
	case <-d.begun:
		return true
	default:
		return false
	}
}

// someTime is when one of many has to go.
func (d *drainState) someTime() time.Duration {
	if d.within <= 0 {
		return 0
	}
	return rand.N(d.within)
}

// count notes that a request is being answered, for WaitStreams.
func (d *drainState) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		d.streams++
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.streams--; d.streams == 0 && d.idle != nil {
				close(d.idle)
				d.idle = nil
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// sendAway lets every answer be the last one of its connection while the Server drains, in HTTP/2 too. Other replicas stay: they ask for what
// only this one has.
func (d *drainState) sendAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.draining() && !peers.FromPeer(r) && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
