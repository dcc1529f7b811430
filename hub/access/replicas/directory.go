package replicas

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// Local gives access to the sessions of this replica. tunnel.Manager implements it.
type Local interface {
	// Connected reports whether there is a session of the key.
	Connected(key string) bool
	// Keys returns the keys of all sessions.
	Keys() []string
	// OnChange registers a function that is called, without locks held, when a key gets its first session or loses its last one.
	OnChange(func(key string))
}

// Options configure a Directory. Local and ReplicaID are required; TLS and Roots are, where there may be other replicas.
type Options struct {
	// Local are the sessions of this replica.
	Local Local
	// ReplicaID identifies this process. No other process ever has the same.
	ReplicaID string
	// Logger of the Directory.
	Logger logr.Logger
	// Registerer gets the metrics; nil for none.
	Registerer prometheus.Registerer
	// TLS configures connections to other replicas: trusted authorities and this replica's certificate.
	TLS *tls.Config
	// Roots are the certificate authorities of replicas' certificates.
	Roots *x509.CertPool
}

// Member is another replica.
type Member struct {
	// ID is its ReplicaID.
	ID string
	// Address is the host:port of its gateway.
	Address string
}

// Directory knows which replica has which sessions. It is a manager.Runnable that runs on every replica.
type Directory struct {
	opts    Options
	log     logr.Logger
	metrics *metrics
	trust   *trust
	publish publisher

	// stopped is closed when nothing more is published to other replicas.
	stopped chan struct{}
	stop    sync.Once
	// onChange is complete before the first session.
	onChange []func(key string)

	mu       sync.RWMutex
	ctx      context.Context // nil before Start; followers live in it
	members  []Member
	peers    map[string]*peer
	owners   map[string][]*peer
	draining bool
}

// New returns a Directory. It knows the sessions of this replica at once, and those of others after Start.
func New(opts Options) *Directory {
	d := &Directory{
		opts: opts, log: opts.Logger, trust: newTrust(opts.Roots),
		peers: map[string]*peer{}, owners: map[string][]*peer{}, stopped: make(chan struct{}),
	}
	d.metrics = newMetrics(opts.Registerer, d)
	opts.Local.OnChange(func(key string) {
		d.publish.changed(key)
		d.mu.RLock()
		elsewhere := len(d.owners[key]) > 0
		d.mu.RUnlock()
		if !elsewhere {
			d.changed(key)
		}
	})
	return d
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica follows the others.
func (d *Directory) NeedLeaderElection() bool { return false }

// StopPublishing ends the streams that others follow. Until Start ends, requests still go to the others.
func (d *Directory) StopPublishing() { d.stop.Do(func() { close(d.stopped) }) }

// Start follows the other replicas until ctx ends.
func (d *Directory) Start(ctx context.Context) error {
	defer d.StopPublishing()
	d.mu.Lock()
	d.ctx = ctx
	members := d.members
	d.mu.Unlock()
	d.SetMembers(members)
	d.expirePeers(ctx)
	return nil
}

// OnChange registers a function that is called, without locks held, when a key gets its first session on any replica or loses its last one.
// The function must not block, and may be called without a change: ask Connected. OnChange must be called before Start.
func (d *Directory) OnChange(f func(key string)) { d.onChange = append(d.onChange, f) }

func (d *Directory) changed(keys ...string) {
	for _, key := range keys {
		for _, f := range d.onChange {
			f(key)
		}
	}
}

// Connected reports whether any replica has a session of the key.
func (d *Directory) Connected(key string) bool {
	if d.opts.Local.Connected(key) {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.owners[key]) > 0
}

// Replicas is how many replicas new sessions can be made to: those that respond and are not stopping, and this one.
func (d *Directory) Replicas() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n := 1
	for _, p := range d.peers {
		if p.isAlive() && !p.draining {
			n++
		}
	}
	return n
}

// Drain announces to the other replicas that this one is stopping, so that they prefer others.
func (d *Directory) Drain() {
	d.mu.Lock()
	d.draining = true
	d.mu.Unlock()
	d.publish.wakeAll()
}

func (d *Directory) isDraining() bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.draining
}

// SetMembers sets the other replicas. One that is not among them any more is followed for as long as it responds: where the
// Kubernetes API is unreachable, nobody renews a Lease.
func (d *Directory) SetMembers(members []Member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.members = members
	if d.ctx == nil {
		return
	}
	for _, m := range members {
		if d.peers[m.ID] == nil && m.ID != d.opts.ReplicaID {
			d.peers[m.ID] = newPeer(d.ctx, m, d.opts.TLS)
			go d.follow(d.peers[m.ID])
		}
	}
	for id, p := range d.peers {
		if !p.isAlive() && !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
			p.stop()
			delete(d.peers, id)
		}
	}
}

const (
	// heartbeatTimeout is the time without a message after which the sessions of a replica are dropped.
	heartbeatTimeout = 3 * time.Second
	// suspectAfter is the time without a message after which other replicas are preferred.
	suspectAfter = 1200 * time.Millisecond
	// heartbeatInterval is the time between messages of a replica.
	heartbeatInterval = 500 * time.Millisecond
)

// expirePeers drops the sessions of replicas that stopped responding.
func (d *Directory) expirePeers(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval / 2)
	defer ticker.Stop()
	for last := sinceStart(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := sinceStart()
		if now-last > suspectAfter {
			// This process was suspended. Messages of the others have not been read yet.
			d.eachPeer(func(p *peer) { p.seen(now - heartbeatTimeout/2) })
		}
		last = now
		d.eachPeer(func(p *peer) {
			if p.unseenFor(now) > heartbeatTimeout {
				d.forget(p, "silent")
			}
		})
	}
}

func (d *Directory) eachPeer(f func(*peer)) {
	d.mu.RLock()
	all := make([]*peer, 0, len(d.peers))
	for _, p := range d.peers {
		all = append(all, p)
	}
	d.mu.RUnlock()
	for _, p := range all {
		f(p)
	}
}
