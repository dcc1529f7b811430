package replicas

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// peer is another replica as this one sees it.
type peer struct {
	Member
	ctx  context.Context // of its follower
	stop context.CancelFunc

	// lastSeen is when its last message came, in sinceStart.
	lastSeen atomic.Int64

	// Guarded by the Directory's lock.
	keys     map[string]struct{}
	draining bool
	// alive lasts from the first complete snapshot until the replica is forgotten; nil outside of that.
	alive     context.Context
	forgotten context.CancelFunc
	// endStream ends the stream that its follower reads, so that the next one begins with a snapshot.
	endStream context.CancelCauseFunc

	// stream is for its sessions, so that requests cannot block them. plain is for requests, which share connections. separate is for those
	// that need one of their own: requests with a body, since all bodies on an HTTP/2 connection wait while the other replica does not read
	// one of them; and upgrades to a stream of bytes, which HTTP/2 cannot carry.
	stream, plain, separate *http.Transport
}

// started is what moments are counted from, so that they fit into an atomic integer and do not jump with the clock.
var started = time.Now()

func sinceStart() time.Duration { return time.Since(started) }

// receiveBuffer is how much of an answer is kept whose reader is behind. It limits an answer to this much per round trip.
const receiveBuffer = 256 << 10

func newPeer(ctx context.Context, m Member, config *tls.Config) *peer {
	p := &peer{Member: m, keys: map[string]struct{}{}, stream: newTransport(config, true), plain: newTransport(config, true),
		separate: newTransport(config, false)}
	p.ctx, p.stop = context.WithCancel(ctx)
	context.AfterFunc(p.ctx, p.closeIdle)
	return p
}

func newTransport(config *tls.Config, http2 bool) *http.Transport {
	t := &http.Transport{
		TLSClientConfig:     config.Clone(),
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 2 * time.Second,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		ForceAttemptHTTP2:   http2,
		Protocols:           &http.Protocols{},
		// A connection that leads nowhere is found out as soon as a replica that is silent.
		HTTP2: &http.HTTP2Config{SendPingTimeout: suspectAfter, PingTimeout: heartbeatTimeout - suspectAfter,
			MaxReceiveBufferPerStream: receiveBuffer},
	}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetHTTP2(http2)
	return t
}

func (p *peer) closeIdle() {
	for _, t := range []*http.Transport{p.stream, p.plain, p.separate} {
		t.CloseIdleConnections()
	}
}

// isAlive needs the Directory's lock, as do the others that say nothing else.
func (p *peer) isAlive() bool { return p.alive != nil }

// seen and unseenFor take moments of sinceStart.
func (p *peer) seen(at time.Duration) { p.lastSeen.Store(int64(at)) }

func (p *peer) unseenFor(now time.Duration) time.Duration {
	return now - time.Duration(p.lastSeen.Load())
}

// replace makes a peer's sessions those of a complete snapshot.
func (d *Directory) replace(p *peer, keys map[string]struct{}) {
	d.mu.Lock()
	var changed []string
	for key := range p.keys {
		if _, stays := keys[key]; !stays && d.removeOwner(key, p) {
			changed = append(changed, key)
		}
	}
	for key := range keys {
		if _, known := p.keys[key]; !known && d.addOwner(key, p) {
			changed = append(changed, key)
		}
	}
	p.keys = keys
	first := !p.isAlive()
	if first {
		p.alive, p.forgotten = context.WithCancel(p.ctx)
	}
	d.mu.Unlock()
	if first {
		d.log.Info("Another replica is heard", "replica", p.ID, "address", p.Address, "sessions", len(keys))
	}
	d.changed(changed...)
}

// update adds and removes sessions of a peer. One that was forgotten has none until the next snapshot.
func (d *Directory) update(p *peer, have, gone []string) {
	if len(have)+len(gone) == 0 {
		return
	}
	d.mu.Lock()
	if !p.isAlive() {
		d.mu.Unlock()
		return
	}
	var changed []string
	for _, key := range have {
		if _, known := p.keys[key]; !known && d.addOwner(key, p) {
			changed = append(changed, key)
		}
		p.keys[key] = struct{}{}
	}
	for _, key := range gone {
		if _, known := p.keys[key]; known && d.removeOwner(key, p) {
			changed = append(changed, key)
		}
		delete(p.keys, key)
	}
	d.mu.Unlock()
	d.changed(changed...)
}

// forget takes all sessions from a peer until its next snapshot, for which its stream is ended. Requests that wait for it are given up.
func (d *Directory) forget(p *peer, why string) {
	d.mu.Lock()
	if !p.isAlive() {
		d.mu.Unlock()
		return
	}
	var changed []string
	for key := range p.keys {
		if d.removeOwner(key, p) {
			changed = append(changed, key)
		}
	}
	sessions := len(p.keys)
	p.forgotten()
	if p.endStream != nil {
		p.endStream(errForgotten)
	}
	p.keys, p.alive, p.forgotten, p.draining = map[string]struct{}{}, nil, nil, false
	d.mu.Unlock()
	p.closeIdle()
	d.metrics.lost.WithLabelValues(why).Inc()
	d.log.Info("Another replica stopped responding, its sessions are left out until it is",
		"replica", p.ID, "address", p.Address, "why", why, "sessions", sessions)
	d.changed(changed...)
}

// addOwner and removeOwner report whether that made the first owner, or took the last; the lock is held.
func (d *Directory) addOwner(key string, p *peer) (first bool) {
	d.owners[key] = append(d.owners[key], p)
	return len(d.owners[key]) == 1
}

func (d *Directory) removeOwner(key string, p *peer) (last bool) {
	d.owners[key] = slices.DeleteFunc(d.owners[key], func(o *peer) bool { return o == p })
	if len(d.owners[key]) > 0 {
		return false
	}
	delete(d.owners, key)
	return true
}
