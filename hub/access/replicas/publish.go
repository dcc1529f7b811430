package replicas

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/drover-dev/drover/hub/util/response"
)

// publisher keeps, for every replica that follows this one, the changes that it has not received yet.
type publisher struct {
	mu          sync.Mutex
	subscribers map[*subscriber]struct{}
}

// subscriber is a replica that follows. What waits for it are names only: whether there is a session is looked up when it is told, so that
// however often a session is added and removed it is queued once.
type subscriber struct {
	mu      sync.Mutex
	pending map[string]struct{}
	// everything stands for more than maxPending names.
	everything bool
	wake       chan struct{}
}

const maxPending = 4096

func (p *publisher) subscribe() (*subscriber, func()) {
	s := &subscriber{pending: map[string]struct{}{}, everything: true, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subscribers == nil {
		p.subscribers = map[*subscriber]struct{}{}
	}
	p.subscribers[s] = struct{}{}
	return s, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subscribers, s)
	}
}

func (p *publisher) changed(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		s.add(key)
	}
}

func (p *publisher) wakeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.subscribers {
		s.signal()
	}
}

func (s *subscriber) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.everything {
		s.pending[key] = struct{}{}
	}
	if len(s.pending) > maxPending {
		s.everything = true
		clear(s.pending)
	}
	s.signal()
}

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next returns the changes that the subscriber has not received yet as messages; nil if there are none.
func (s *subscriber) next(local Local) []message {
	s.mu.Lock()
	pending, everything := s.pending, s.everything
	s.pending, s.everything = map[string]struct{}{}, false
	s.mu.Unlock()
	if everything {
		return snapshot(local.Keys())
	}
	var out []message
	var m message
	for key := range pending {
		if local.Connected(key) {
			m.Have = append(m.Have, key)
		} else {
			m.Gone = append(m.Gone, key)
		}
		if len(m.Have)+len(m.Gone) == keysPerMessage {
			out, m = append(out, m), message{}
		}
	}
	if len(m.Have)+len(m.Gone) > 0 {
		out = append(out, m)
	}
	return out
}

// ServeHTTP streams the sessions of this replica to another replica until either stops. Other clients get 403.
func (d *Directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !FromPeer(r) {
		response.SetTimeout(w, heartbeatTimeout)
		http.Error(w, "only replicas of this hub may follow its sessions", http.StatusForbidden)
		return
	}
	s, unsubscribe := d.publish.subscribe()
	defer unsubscribe()
	control := http.NewResponseController(w)
	encoder := json.NewEncoder(w)
	tell := func(m message) error {
		m.Draining = d.isDraining()
		// A replica that does not read is not worth waiting for: when it reads again, it asks again.
		if err := control.SetWriteDeadline(time.Now().Add(heartbeatTimeout)); err != nil {
			return err
		}
		if err := encoder.Encode(m); err != nil {
			return err
		}
		return control.Flush()
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if tell(message{Replica: d.opts.ReplicaID}) != nil {
		return
	}
	beat := time.NewTicker(heartbeatInterval)
	defer beat.Stop()
	s.signal()
	for {
		messages := []message{{}}
		select {
		case <-r.Context().Done():
			return
		case <-d.stopped:
			return
		case <-beat.C:
		case <-s.wake:
			if changes := s.next(d.opts.Local); changes != nil {
				messages = changes
			}
		}
		for _, m := range messages {
			if tell(m) != nil {
				return
			}
		}
	}
}
