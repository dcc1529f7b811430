// Package ratelimit bounds how often one client may ask for something, by where it comes from or by whatever else tells clients apart. It
// keeps nothing between two runs, and replicas do not share it.
package ratelimit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter gives every key a token bucket of its own. A key of which nothing is remembered has a full one, so buckets that are full again are
// forgotten.
//
// Many keys do not make it refuse others: beyond maxKeys, a new key shares the bucket of its network, and where there are too many of those too, the
// one that was used least recently is forgotten.
type Limiter struct {
	burst int
	// refill is how long an empty bucket takes to be full.
	refill time.Duration
	now    func() time.Time

	mu             sync.Mutex
	keys, networks *table
}

// maxKeys is how many keys are remembered, and how many networks.
const maxKeys = 20000

// New makes a Limiter of which each key may take burst tokens at once, and perSecond after that.
func New(perSecond rate.Limit, burst int) *Limiter {
	return &Limiter{
		burst: burst, refill: time.Duration(float64(burst)/float64(perSecond)*float64(time.Second)) + time.Second, now: time.Now,
		keys: newTable(perSecond, burst, maxKeys), networks: newTable(perSecond, burst, maxKeys),
	}
}

// Take uses one token of key; where there is none, it tells how long until there will be.
func (l *Limiter) Take(key string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	reservation := l.bucket(key, now).ReserveN(now, 1)
	if wait = reservation.DelayFrom(now); wait == 0 {
		return 0, true
	}
	reservation.CancelAt(now)
	return wait, false
}

// Empty tells whether key has no token left, without using one.
func (l *Limiter) Empty(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket := l.keys.get(key, now)
	if bucket == nil && l.crowded(now) {
		bucket = l.networks.get(network(key), now)
	}
	return bucket != nil && bucket.TokensAt(now) < 1
}

// bucket is that of a key, or of its network while there is no place for more keys.
func (l *Limiter) bucket(key string, now time.Time) *rate.Limiter {
	if bucket := l.keys.get(key, now); bucket != nil {
		return bucket
	}
	if !l.crowded(now) {
		return l.keys.add(key, now)
	}
	shared := network(key)
	if bucket := l.networks.get(shared, now); bucket != nil {
		return bucket
	}
	return l.networks.add(shared, now)
}

// crowded tells whether there is no place for another key, once those are forgotten whose bucket is full again.
func (l *Limiter) crowded(now time.Time) bool {
	l.keys.forget(now.Add(-l.refill))
	l.networks.forget(now.Add(-l.refill))
	return l.keys.full()
}

// network is what the keys of one network share: 256 IPv4 addresses, or the 65,536 networks of /64 that a site usually has. Keys that are no
// addresses have none but themselves.
func network(key string) string {
	if prefix, err := netip.ParsePrefix(key); err == nil && prefix.Addr().Is6() && prefix.Bits() > 48 {
		return netip.PrefixFrom(prefix.Addr(), 48).Masked().String()
	}
	if address, err := netip.ParseAddr(key); err == nil && address.Is4() {
		return netip.PrefixFrom(address, 24).Masked().String()
	}
	return key
}

// ClientAddress is where a request comes from. Headers of proxies are not believed.
func ClientAddress(r *http.Request) string { return host(r.RemoteAddr) }

func host(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// ClientKey is what a client is limited by: its IPv4 address, or the /64 network in which it can choose IPv6 addresses.
func ClientKey(r *http.Request) string { return AddressKey(r.RemoteAddr) }

// AddressKey is ClientKey of the remote address of a connection, host:port.
func AddressKey(remote string) string {
	address, err := netip.ParseAddr(host(remote))
	if err != nil {
		return remote
	}
	if address = address.Unmap(); address.Is6() {
		if network, err := address.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return address.String()
}
