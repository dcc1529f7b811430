// Package retry holds what every part of the agent that talks to a server shares: when an answer is worth another request, and how long to
// wait before it. It makes no requests.
//
// wait.Backoff of k8s.io/apimachinery is not used: it is stateful, adds its jitter on top of the cap, and knows no Retry-After.
package retry

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// MaxRetryAfter bounds what a server may ask for with Retry-After.
const MaxRetryAfter = time.Hour

// maxShift keeps Exponential from overflowing.
const maxShift = 20

// Exponential is the delay after a number of failures in a row: base after the first, twice as long after each further one, limit at most.
// It is not jittered.
func Exponential(failures int, base, limit time.Duration) time.Duration {
	return min(base<<min(max(failures-1, 0), maxShift), limit)
}

// Delay is Exponential with Jitter.
func Delay(failures int, base, limit time.Duration) time.Duration {
	return Jitter(Exponential(failures, base, limit))
}

// Jitter spreads a delay by a quarter in both directions, so that a thousand agents do not come back at once.
func Jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}

// Temporary reports whether a request that was answered with an HTTP status may succeed later: 408, 425, 429 and everything from 500 on.
func Temporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// After reads the header Retry-After in both of its forms, seconds and an HTTP date (RFC 9110, section 10.2.3): 0 where there is none or it
// cannot be read, MaxRetryAfter at most.
func After(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), MaxRetryAfter)
	}
	return 0
}

// Sleep waits and returns nil, or the cause of ctx as soon as ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// NotBefore remembers until when a server wants no requests. The zero value wants some now.
type NotBefore struct {
	mu    sync.Mutex
	until time.Time
}

// Note remembers the Retry-After of a response with status 429 or 503, limit at most. Other responses change nothing.
func (n *NotBefore) Note(response *http.Response, limit time.Duration) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	now := time.Now()
	if wait := After(response.Header, now); wait > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.until = now.Add(min(wait, limit))
	}
}

// Wait returns for how long the server wants no requests.
func (n *NotBefore) Wait() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(time.Until(n.until), 0)
}
