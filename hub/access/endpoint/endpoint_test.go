package endpoint

import (
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// TestNextServer: a failover selects another machine, not another address of the same one, and one that is down only if there is no other.
func TestNextServer(t *testing.T) {
	a := Server{URLs: []string{"https://a1", "https://a2"}}
	b := Server{URLs: []string{"https://b"}, Down: true}
	c := Server{URLs: []string{"https://c"}}
	for _, tc := range []struct {
		name    string
		servers []Server
		current string
		want    string
	}{
		{"one machine", []Server{a}, "https://a2", ""},
		{"the next that works", []Server{a, b, c}, "https://a1", "https://c"},
		{"round again", []Server{a, b, c}, "https://c", "https://a1"},
		{"none is known to work", []Server{a, b}, "https://a1", "https://b"},
		{"a server that is not the cluster's", []Server{a, c}, "https://x", ""},
	} {
		if got := nextServer(tc.servers, tc.current); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestFailover: a server that does not respond is replaced, but not after the first failed probe, and the next one gets time to respond.
func TestFailover(t *testing.T) {
	now := time.Unix(10000, 0)
	servers := []Server{{URLs: []string{"https://a"}}, {URLs: []string{"https://b"}}}
	for _, tc := range []struct {
		name     string
		failures int
		silent   time.Duration
		switched time.Duration
		want     string
	}{
		{name: "it answers"},
		{name: "one probe failed", failures: 1, silent: 25 * time.Second},
		{name: "two failed at once", failures: 2, silent: 5 * time.Second},
		{name: "it is silent", failures: 2, silent: 25 * time.Second, want: "https://b"},
		{name: "it was just switched", failures: 9, silent: time.Hour, switched: time.Minute},
		{name: "it was switched long ago", failures: 9, silent: 10 * time.Minute, switched: 3 * time.Minute, want: "https://b"},
		{name: "it is silent for hours", failures: 9, silent: 5 * time.Hour, switched: 20 * time.Minute},
		{name: "it was switched while the clock was ahead", failures: 9, silent: 5 * time.Minute, switched: -14 * time.Hour, want: "https://b"},
		{name: "it was just switched by a hub whose clock is a little ahead", failures: 9, silent: 5 * time.Minute, switched: -time.Second},
	} {
		s := State{Targets: Targets{Servers: servers}, Current: "https://a",
			Health: &clustercache.HealthCheckingState{ConsecutiveFailures: tc.failures, LastProbeSuccessTime: now.Add(-tc.silent)}}
		if tc.switched != 0 {
			s.LastSwitched = now.Add(-tc.switched)
		}
		got := (&Chooser{Now: func() time.Time { return now }}).Choose(s)
		if got.Server != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got.Server, tc.want)
		}
		if again := got.RequeueAfter > 0; again != (tc.failures == 1 || tc.failures > 2 || tc.want != "") {
			t.Errorf("%s: it is chosen again after %v", tc.name, got.RequeueAfter)
		}
	}
}
