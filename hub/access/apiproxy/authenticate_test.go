package apiproxy

import (
	"net/http/httptest"
	"testing"
)

func TestDropCredentials(t *testing.T) {
	for in, want := range map[string]string{
		"v5.channel.k8s.io, v4.channel.k8s.io":                             "v5.channel.k8s.io, v4.channel.k8s.io",
		"base64url.bearer.authorization.k8s.io.c2VjcmV0,v4.channel.k8s.io": "v4.channel.k8s.io",
		"base64url.bearer.authorization.k8s.io.c2VjcmV0":                   "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		for name, value := range map[string]string{"Sec-WebSocket-Protocol": in, "Cookie": "x", "Authorization": "x"} {
			r.Header.Set(name, value)
		}
		dropCredentials(r.Header)
		if got := r.Header.Get("Sec-WebSocket-Protocol"); got != want || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("%q became %q, all headers %v", in, got, r.Header)
		}
	}
}
