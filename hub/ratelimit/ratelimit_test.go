package ratelimit

import (
	"net/http"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(1, 2)
	l.now = func() time.Time { return now }
	l.max = 2
	_, first := l.Take("a")
	_, second := l.Take("a")
	wait, third := l.Take("a")
	if !first || !second || third || wait <= 0 || wait > time.Second || !l.Empty("a") || l.Empty("b") {
		t.Errorf("%v %v %v, wait %v", first, second, third, wait)
	}
	now = now.Add(time.Second)
	if _, ok := l.Take("a"); !ok {
		t.Error("no new token after a second")
	}
	// More keys than are remembered share one bucket.
	for _, key := range []string{"c", "d"} {
		_, _ = l.Take(key)
	}
	if _, ok := l.Take("e"); ok {
		t.Error("a key beyond the bound has a bucket of its own")
	}
	now = now.Add(time.Hour)
	if l.Empty("z"); len(l.buckets) != 1 {
		t.Errorf("%d buckets are kept of idle keys", len(l.buckets)-1)
	}
}

func TestClientKey(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1": "192.0.2.1", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64", "[::ffff:192.0.2.1]:1": "192.0.2.1", "@": "@",
	} {
		if got := ClientKey(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}
