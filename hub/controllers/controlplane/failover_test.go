package controlplane

import "testing"

// A kubeconfig goes to another machine, not to another address of the same, and to one that is known to be down only if there is no other.
func TestNextServer(t *testing.T) {
	a := apiServer{machine: "a", urls: []string{"https://a1", "https://a2"}}
	b := apiServer{machine: "b", urls: []string{"https://b"}, down: true}
	c := apiServer{machine: "c", urls: []string{"https://c"}}
	for _, tc := range []struct {
		name    string
		servers []apiServer
		current string
		want    string
	}{
		{"one machine", []apiServer{a}, "https://a2", ""},
		{"the next that works", []apiServer{a, b, c}, "https://a1", "https://c"},
		{"round again", []apiServer{a, b, c}, "https://c", "https://a1"},
		{"none is known to work", []apiServer{a, b}, "https://a1", "https://b"},
		{"a server that is not the cluster's", []apiServer{a, c}, "https://x", ""},
	} {
		if got := nextServer(tc.servers, tc.current); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
