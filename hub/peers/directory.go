package peers

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

// Local are the sessions of this replica. tunnel.Manager is one.
type Local interface {
	Connected(key string) bool
	Keys() []string
	// OnChange registers what is called, without locks held, when the first session of a key came or the last one went.
	OnChange(func(key string))
}

// Options say what a Directory knows from the start. Local and ReplicaID are needed; TLS and Roots are where there may be other replicas.
type Options struct {
	Local     Local
	ReplicaID string
	Logger    logr.Logger
	// Registerer gets the metrics; nil for none.
	Registerer prometheus.Registerer
	// TLS is the client's side of a connection to another replica: what it trusts, and the certificate that it shows.
	TLS *tls.Config
	// Roots are the authorities whose certificates for replicas are believed.
	Roots *x509.CertPool
}

// Member is another replica.
type Member struct {
	// ID is never used again by another process, Address is host:port of its gateway.
	ID, Address string
}

// Directory knows on which replica there is a session. It is a manager.Runnable that runs on every replica.
type Directory struct {
	opts    Options
	log     logr.Logger
	metrics *metrics
	trust   *trust
	publish publisher

	// stopped is closed when the others are told nothing more.
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

// New makes a Directory. It answers for the sessions of this replica at once, and for those of others after Start.
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

// NeedLeaderElection tells the manager that every replica follows the others.
func (d *Directory) NeedLeaderElection() bool { return false }

// StopTelling ends the streams that others follow. Until Start ends, requests still go to the others.
func (d *Directory) StopTelling() { d.stop.Do(func() { close(d.stopped) }) }

// Start follows the other replicas until ctx ends.
func (d *Directory) Start(ctx context.Context) error {
	defer d.StopTelling()
	d.mu.Lock()
	d.ctx = ctx
	members := d.members
	d.mu.Unlock()
	d.SetMembers(members)
	d.watchSilence(ctx)
	return nil
}

// OnChange registers what is called, without locks held, when the first session of a key, on any replica, came or the last one went. It
// must not block, and may be called when nothing has changed: Connected tells. It is for before Start.
func (d *Directory) OnChange(f func(key string)) { d.onChange = append(d.onChange, f) }

func (d *Directory) changed(keys ...string) {
	for _, key := range keys {
		for _, f := range d.onChange {
			f(key)
		}
	}
}

// Connected tells whether any replica has a session of the key.
func (d *Directory) Connected(key string) bool {
	if d.opts.Local.Connected(key) {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.owners[key]) > 0
}

// Replicas is how many replicas new sessions can be made to: those that are heard and do not stop, and this one.
func (d *Directory) Replicas() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n := 1
	for _, p := range d.peers {
		if p.alive() && !p.draining {
			n++
		}
	}
	return n
}

// Drain tells the other replicas that this one is about to stop, so that they send it no more than they must.
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

// SetMembers says which other replicas there are. One that is not among them any more is followed for as long as it is heard: where the
// Kubernetes API is away, nobody renews a Lease.
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
		if !p.alive() && !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id }) {
			p.stop()
			delete(d.peers, id)
		}
	}
}

const (
	// silence is how long a replica may say nothing before its sessions are forgotten.
	silence = 3 * time.Second
	// doubt is how long one may say nothing before others are preferred.
	doubt = 1200 * time.Millisecond
	// heartbeat is how often each says something.
	heartbeat = 500 * time.Millisecond
)

// watchSilence forgets replicas that are not heard any more.
func (d *Directory) watchSilence(ctx context.Context) {
	ticker := time.NewTicker(heartbeat / 2)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > doubt {
			// It was this process that stood still. What the others have said meanwhile has still to be read.
			d.eachPeer(func(p *peer) { p.hear(now.Add(-silence / 2)) })
		}
		last = now
		d.eachPeer(func(p *peer) {
			if p.silentFor(now) > silence {
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
