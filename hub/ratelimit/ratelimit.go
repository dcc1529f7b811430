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

// Limiter gives every key a token bucket of its own. It forgets keys that have been idle for long enough that their bucket is full.
type Limiter struct {
	rate  rate.Limit
	burst int
	// max is how many keys are remembered. Beyond it new keys share one bucket, so that memory stays bounded.
	max int
	now func() time.Time

	mu       sync.Mutex
	buckets  map[string]*bucket
	overflow *rate.Limiter
	swept    time.Time
}

type bucket struct {
	*rate.Limiter
	used time.Time
}

// New makes a Limiter of which each key may take burst tokens at once, and perSecond after that.
func New(perSecond rate.Limit, burst int) *Limiter {
	return &Limiter{
		rate: perSecond, burst: burst, max: 20000, now: time.Now,
		buckets: map[string]*bucket{}, overflow: rate.NewLimiter(perSecond, burst),
	}
}

// Take uses one token of key; where there is none, it tells how long until there will be.
func (l *Limiter) Take(key string) (wait time.Duration, ok bool) {
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
	now := l.now()
	return l.bucket(key, now).TokensAt(now) < 1
}

func (l *Limiter) bucket(key string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle := time.Duration(float64(l.burst)/float64(l.rate)*float64(time.Second)) + time.Second
	if now.Sub(l.swept) > idle {
		for k, b := range l.buckets {
			if now.Sub(b.used) > idle {
				delete(l.buckets, k)
			}
		}
		l.swept = now
	}
	b, found := l.buckets[key]
	if !found {
		if len(l.buckets) >= l.max {
			return l.overflow
		}
		b = &bucket{Limiter: rate.NewLimiter(l.rate, l.burst)}
		l.buckets[key] = b
	}
	b.used = now
	return b.Limiter
}

// ClientAddress is where a request comes from. Headers of proxies are not believed.
func ClientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// ClientKey is what a client is limited by: its IPv4 address, or the /64 network in which it can choose IPv6 addresses.
func ClientKey(r *http.Request) string {
	address, err := netip.ParseAddr(ClientAddress(r))
	if err != nil {
		return r.RemoteAddr
	}
	if address = address.Unmap(); address.Is6() {
		if network, err := address.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return address.String()
}
