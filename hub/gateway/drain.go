package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/hub/access/replicas"
)

// drainState is how a Server stops if there are other replicas: first it reports that it is not ready, so that load balancers leave it
// out, then streams end one after the other, and only then it stops.
type drainState struct {
	unready atomic.Bool
	// begun is closed, after within is set, when streams have to end. stopping ends when the server stops.
	begun    chan struct{}
	within   time.Duration
	stopping context.Context
	stop     context.CancelFunc

	mu      sync.Mutex
	streams int
	// idle is closed when there are no streams; nil unless somebody waits.
	idle chan struct{}
}

func newDrainState() *drainState {
	d := &drainState{begun: make(chan struct{})}
	d.stopping, d.stop = context.WithCancel(context.Background())
	return d
}

// Draining implements plandelivery.Drainer.
func (d *drainState) Draining() <-chan struct{} { return d.begun }

// Stopping implements plandelivery.Drainer.
func (d *drainState) Stopping() <-chan struct{} { return d.stopping.Done() }

// Delay implements plandelivery.Drainer: a random part of the time within which streams have to end.
func (d *drainState) Delay() time.Duration {
	if d.within <= 0 {
		return 0
	}
	return rand.N(d.within)
}

// Unready makes /healthz fail from now on. Everything is served as before.
func (s *Server) Unready() { s.drain.unready.Store(true) }

// Drain ends the watches of plans, each after a random time within the given one, so that machines do not all reconnect at the same time.
// No new ones begin. Other requests are answered, and their connections closed, so that the next one reaches another replica. It must be
// called once only.
func (s *Server) Drain(within time.Duration) {
	s.drain.within = within
	close(s.drain.begun)
}

// WaitStreams returns when no request of a mounted handler is running, or ctx ends.
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

// count counts running requests for WaitStreams.
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

// closeConnections closes the connection after each answer while the Server drains, in HTTP/2 too. Connections of other replicas stay
// open: they ask for what only this one has.
func (d *drainState) closeConnections(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-d.begun:
			if !replicas.FromPeer(r) && r.Header.Get("Upgrade") == "" {
				w.Header().Set("Connection", "close")
			}
		default:
		}
		next.ServeHTTP(w, r)
	})
}
