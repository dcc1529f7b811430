package apiproxy

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits bound what one user may have under way in one cluster at the same time. 0 is the default.
type Limits struct {
	// Requests are ordinary requests, 200 by default; Watches are watches and logs, 1,000; Upgrades are exec, attach and port-forward, 100.
	Requests, Watches, Upgrades int
}

func (l Limits) of(k kind) int {
	given, fallback := l.Requests, 200
	switch k {
	case longRunning:
		given, fallback = l.Watches, 1000
	case upgrade:
		given, fallback = l.Upgrades, 100
	}
	if given > 0 {
		return given
	}
	return fallback
}

// limiter counts what is under way.
type limiter struct {
	limits Limits
	mu     sync.Mutex
	counts map[limitKey]int
}

type limitKey struct {
	user, cluster string
	kind          kind
}

func newLimiter(limits Limits) *limiter { return &limiter{limits: limits, counts: map[limitKey]int{}} }

// enter counts a request in, unless there are too many already. What it takes is given back by leave.
func (l *limiter) enter(key limitKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[key] >= l.limits.of(key.kind) {
		return false
	}
	l.counts[key]++
	return true
}

func (l *limiter) leave(key limitKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[key]--; l.counts[key] <= 0 {
		delete(l.counts, key)
	}
}

func (h *Handler) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r)
		key := limitKey{c.user.GetName(), c.cluster, c.kind}
		if !h.limits.enter(key) {
			writeError(w, r, retryLater(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
				"you have %d %s requests under way in this cluster already, which is as many as the hub lets one user have",
				h.limits.limits.of(c.kind), c.kind))
			return
		}
		defer h.limits.leave(key)
		next.ServeHTTP(w, r)
	})
}
