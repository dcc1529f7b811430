package gateway

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/pki"
	"github.com/drover-dev/drover/hub/ratelimit"
	"github.com/drover-dev/drover/hub/tokens"
)

// authority is a certificate as agents of other hubs send it: PEM in base64.
func authority(t *testing.T) string {
	t.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "x", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	must(t, err)
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Cert.Raw}))
}

func TestTunnelParams(t *testing.T) {
	ca := authority(t)
	encode := func(json string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(json, "CA", ca)))
	}
	for _, tt := range []struct{ name, header, err string }{
		{name: "good", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t","caCert":"CA"},"more":1}`)},
		{name: "missing", err: "JSON in base64"},
		{name: "no base64", header: "{}", err: "JSON in base64"},
		{name: "no JSON", header: encode("x"), err: "JSON in base64"},
		{name: "a node", header: encode(`{"node":{"hostname":"n"}}`), err: "cluster is missing"},
		{name: "no port", header: encode(`{"cluster":{"address":"10.43.0.1","token":"t","caCert":"CA"}}`), err: "cluster.address must be host:port"},
		{name: "no token", header: encode(`{"cluster":{"address":"10.43.0.1:443","caCert":"CA"}}`), err: "cluster.token is missing"},
		{name: "no authority", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t"}}`), err: "cluster.caCert must be certificates"},
		{name: "another authority", header: encode(`{"cluster":{"address":"10.43.0.1:443","token":"t","caCert":"eHh4"}}`), err: "cluster.caCert must be certificates"},
		{name: "huge", header: strings.Repeat("A", maxTunnelParams+4), err: "too long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseTunnelParams(tt.header)
			var refused *refusal
			switch {
			case tt.err == "" && (err != nil || got.Address != "10.43.0.1:443" || got.Token != "t" || len(got.CACert) == 0):
				t.Errorf("%+v, %v", got, err)
			case tt.err != "" && (!errors.As(err, &refused) || refused.code != http.StatusBadRequest ||
				!strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), tunnelParamsHeader)):
				t.Errorf("got %v, want 400 with %q", err, tt.err)
			}
		})
	}
}

func FuzzTunnelParams(f *testing.F) {
	for _, seed := range []string{"", "e30=", "eyJjbHVzdGVyIjp7fX0="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if got, err := parseTunnelParams(header); (got == nil) == (err == nil) {
			t.Errorf("%+v and %v", got, err)
		}
	})
}

func TestReadAgentID(t *testing.T) {
	for _, tt := range []struct{ body, want, err string }{
		{body: `{"agent":"0123456789-abcdef"}`, want: "0123456789-abcdef"},
		{body: ""}, {body: "{}"},
		{body: "x", err: "must be JSON"},
		{body: `{"agent":1}`, err: "must be JSON"},
		{body: `{"agent":"short"}`, err: "agent: it must be 16 to 64"},
		{body: `{"agent":"0123456789/../abcdef"}`, err: "agent: it must be 16 to 64"},
		{body: `{"agent":"` + strings.Repeat("a", 65) + `"}`, err: "agent: it must be 16 to 64"},
	} {
		got, err := readAgentID(strings.NewReader(tt.body))
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v", tt.body, got, err)
		}
	}
}

// from makes a request that comes from an address.
func from(address, path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = address + ":1"
	return r
}

func TestGate(t *testing.T) {
	_, err := newGate().enter(from("192.0.2.1", "/"), "x", false)
	must(t, err)
	code := func(err error) int {
		var refused *refusal
		if !errors.As(err, &refused) {
			return http.StatusOK
		}
		if refused.retryAfter <= 0 {
			t.Errorf("%v does not say when to come again", err)
		}
		return refused.code
	}
	g := &gate{clients: ratelimit.New(1, 2), tokens: ratelimit.New(1, 100), slots: make(chan struct{}, 100), strangers: make(chan struct{}, 100)}
	for i, want := range []int{200, 200, 429} {
		if _, err := g.enter(from("192.0.2.1", "/"), "x", false); code(err) != want {
			t.Errorf("request %d of an address: %v", i, err)
		}
	}
	if _, err := g.enter(from("192.0.2.2", "/"), "x", false); err != nil {
		t.Errorf("another address: %v", err)
	}
	if _, err := g.enter(from("192.0.2.1", "/"), "known", true); err != nil {
		t.Errorf("a token that is recognized, from the address of strangers: %v", err)
	}

	g = &gate{clients: ratelimit.New(1, 100), tokens: ratelimit.New(1, 2), slots: make(chan struct{}, 100), strangers: make(chan struct{}, 100)}
	token := "aaaaaaaaaa." + tokens.Hash("a")
	for i := range 10 {
		if _, err := g.enter(from("192.0.2.1", "/"), "aaaaaaaaaa."+tokens.Hash(string(rune('b'+i))), false); err != nil {
			t.Errorf("a stranger who knows the public part of a token: %v", err)
		}
	}
	for i, want := range []int{200, 200, 429} {
		if _, err := g.enter(from("192.0.2.1", "/"), token, true); code(err) != want {
			t.Errorf("request %d with a token: %v", i, err)
		}
	}

	for _, recognized := range []bool{false, true} {
		g = &gate{clients: ratelimit.New(1, 100), tokens: ratelimit.New(1, 100), slots: make(chan struct{}, 1), strangers: make(chan struct{}, 1)}
		leave, err := g.enter(from("192.0.2.1", "/"), "x", recognized)
		must(t, err)
		if _, err := g.enter(from("192.0.2.1", "/"), "x", recognized); code(err) != http.StatusServiceUnavailable {
			t.Errorf("too many at once: %v", err)
		}
		if _, err := g.enter(from("192.0.2.1", "/"), "y", !recognized); err != nil {
			t.Errorf("strangers and others share slots: %v", err)
		}
		leave()
		if _, err := g.enter(from("192.0.2.1", "/"), "x", recognized); err != nil {
			t.Errorf("after one has left: %v", err)
		}
	}
}
