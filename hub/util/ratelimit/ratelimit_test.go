package ratelimit

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(1, 2)
	l.now = func() time.Time { return now }
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
	if l.Empty("z"); len(l.keys.elements) != 1 {
		t.Errorf("%d keys are kept, want the one that was used", len(l.keys.elements))
	}
	now = now.Add(time.Hour)
	if _, _ = l.Take("z"); len(l.keys.elements) != 1 {
		t.Errorf("%d keys are kept, want the one that is not idle", len(l.keys.elements))
	}
}

// TestManyKeys fills the table of keys: nobody is refused for what others do, but for those in the same network.
func TestManyKeys(t *testing.T) {
	now := time.Unix(0, 0)
	l := New(1, 2)
	l.now = func() time.Time { return now }
	l.keys.max, l.networks.max = 100, 50
	exhaust := func(key string) {
		for range 3 {
			_, _ = l.Take(key)
		}
	}
	for i := range 200 {
		exhaust(fmt.Sprintf("10.0.%d.1", i))
	}
	if got := len(l.keys.elements) + len(l.networks.elements); got != 150 {
		t.Errorf("%d buckets are kept, want 150", got)
	}
	for _, limited := range []string{"10.0.0.1", "10.0.199.1", "10.0.199.77"} {
		if !l.Empty(limited) {
			t.Errorf("%s is not limited", limited)
		}
		if _, ok := l.Take(limited); ok {
			t.Errorf("%s has a token", limited)
		}
	}
	for _, honest := range []string{"192.0.2.1", "2001:db8:1:2::/64", "a token"} {
		if l.Empty(honest) {
			t.Errorf("%s has no token before it took one", honest)
		}
		if _, ok := l.Take(honest); !ok {
			t.Errorf("%s is refused for what others do", honest)
		}
	}
	// Whoever is quiet makes place.
	now = now.Add(time.Minute)
	if _, ok := l.Take("198.51.100.1"); !ok || len(l.keys.elements) != 1 || len(l.networks.elements) != 0 {
		t.Errorf("after a minute %d keys and %d networks are kept", len(l.keys.elements), len(l.networks.elements))
	}
}

func TestNetwork(t *testing.T) {
	for key, want := range map[string]string{
		"192.0.2.77": "192.0.2.0/24", "2001:db8:1:2::/64": "2001:db8:1::/48", "token": "token", "@": "@", "ns/name": "ns/name",
	} {
		if got := network(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
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
