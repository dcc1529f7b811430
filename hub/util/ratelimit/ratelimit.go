// Package ratelimit limits how often one client may make a request, by its address or by any other key. Limits are in memory, for each
// replica.
package ratelimit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter has a token bucket for each key. Buckets that are full again are dropped, since an unknown key has a full one.
//
// No key is refused because there are many others: beyond maxKeys, a new key shares the bucket of its network, and if there are too many
// networks too, the least recently used bucket is dropped.
type Limiter struct {
	// refill is how long an empty bucket takes to be full.
	refill time.Duration
	now    func() time.Time

	mu             sync.Mutex
	keys, networks *table
}

// maxKeys is how many buckets of keys there may be, and of networks.
const maxKeys = 20000

// New returns a Limiter with buckets of burst tokens, which are refilled with perSecond tokens a second.
func New(perSecond rate.Limit, burst int) *Limiter {
	return &Limiter{
		refill: time.Duration(float64(burst)/float64(perSecond)*float64(time.Second)) + time.Second, now: time.Now,
		keys: newTable(perSecond, burst, maxKeys), networks: newTable(perSecond, burst, maxKeys),
	}
}

// Take uses one token of key. If there is none, ok is false and wait is how long until there is one.
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

// Empty reports whether key has no token left, without using one.
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

// bucket is that of a key, or of its network while the table of keys is full.
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

// crowded reports whether there is no place for another key, once those are forgotten whose bucket is full again.
func (l *Limiter) crowded(now time.Time) bool {
	l.keys.forget(now.Add(-l.refill))
	l.networks.forget(now.Add(-l.refill))
	return l.keys.full()
}

// network is what the keys of one network share: an IPv4 /24, or the IPv6 /48 that a site usually has. Other keys are their own network.
func network(key string) string {
	if prefix, err := netip.ParsePrefix(key); err == nil && prefix.Addr().Is6() && prefix.Bits() > 48 {
		return netip.PrefixFrom(prefix.Addr(), 48).Masked().String()
	}
	if address, err := netip.ParseAddr(key); err == nil && address.Is4() {
		return netip.PrefixFrom(address, 24).Masked().String()
	}
	return key
}

// ClientAddress is the IP address of the client. Headers of proxies are ignored.
func ClientAddress(r *http.Request) string { return host(r.RemoteAddr) }

func host(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// ClientKey is the key of a client: its IPv4 address, or its IPv6 /64, within which it can choose addresses.
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
