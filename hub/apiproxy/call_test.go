package apiproxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzCall checks that whatever path somebody asks for stays a path of the cluster that it names.
func FuzzCall(f *testing.F) {
	for _, path := range []string{
		"/k8s/clusters/c-m-1/api/v1/pods?watch=1", "/k8s/proxy/c-m-1", "/k8s/clusters/c-m-1//evil/x", "/k8s/clusters/c-m-1/%2F%2e%2e/x", "/k8s/clusters/c-m-1/a%zz",
		"/k8s/clusters/c-m-1/@evil/;a=b?x=%", "/k8s/clusters//x", "/k8s/clusters/c%2Fm/x",
	} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		asked, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		prefix, id, rest, ok := split(asked.EscapedPath())
		if !ok {
			return
		}
		c, err := newCall(&http.Request{Method: "GET", URL: asked, Header: http.Header{}}, prefix+id, id, rest)
		if err != nil {
			return
		}
		target := *c.url
		target.Scheme, target.Host = "http", "cluster"
		sent, err := url.Parse(target.String())
		if err != nil || sent.Host != "cluster" || sent.Path != c.url.Path || sent.User != nil || !strings.HasPrefix(sent.Path, "/") {
			t.Errorf("%q became %q: %v", path, target.String(), err)
		}
	})
}

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
