package tunnelaccess

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/server/settings"
)

// respondWith starts an API server, or a proxy in front of it, with one response.
func respondWith(t *testing.T, code int, check func(*http.Request)) (url string, authorities []byte) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if check != nil {
			check(r)
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// TestDirect: a server with the cluster's certificate is reachable if it responds at all, even if it refuses unauthenticated requests.
func TestDirect(t *testing.T) {
	for code, want := range map[int]bool{200: true, 401: true, 403: true, 500: false, 503: false} {
		url, authorities := respondWith(t, code, func(r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("a server that is only looked at is shown a credential")
			}
		})
		if got := Direct(t.Context(), url, authorities, nil); (got == nil) != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	url, _ := respondWith(t, 200, nil)
	if err := Direct(t.Context(), url, []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), nil); err == nil {
		t.Error("a server with an untrusted certificate counts")
	}
	if err := Direct(t.Context(), "https://127.0.0.1:1", nil, nil); err == nil || IsUntrusted(err) {
		t.Errorf("an unreachable server: %v", err)
	}
	large := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
	}))
	defer large.Close()
	authorities := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: large.Certificate().Raw})
	if err := Direct(t.Context(), large.URL, authorities, nil); err == nil {
		t.Error("a header of any length is read")
	}
}

// TestDirectWithCertificate: a server that refuses the client certificate does not count, and the errors tell why.
func TestDirectWithCertificate(t *testing.T) {
	ca, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	credential, err := pki.Issue(pki.Request{CommonName: "probe", Usage: x509.ExtKeyUsageClientAuth, Lifetime: time.Hour}, ca, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]error{200: nil, 403: nil, 401: ErrUnauthorized} {
		url, authorities := respondWith(t, code, nil)
		if err := Direct(t.Context(), url, authorities, credential); !errors.Is(err, want) {
			t.Errorf("%d: %v, want %v", code, err, want)
		}
		if err := Direct(t.Context(), url, ca.CertPEM(), credential); !IsUntrusted(err) || errors.Is(err, ErrUnauthorized) {
			t.Errorf("a server of another authority: %v", err)
		}
	}
}

// TestResponses: through the tunnel only a response of the API server counts, since the gateway responds for disconnected clusters.
func TestResponses(t *testing.T) {
	for code, want := range map[int]bool{200: true, 401: false, 403: false, 503: false} {
		var path, token string
		url, authorities := respondWith(t, code, func(r *http.Request) { path, token = r.URL.Path, r.Header.Get("Authorization") })
		access := &Access{
			Settings: settings.Settings{ServerURL: url, CACerts: authorities},
			Issue: func(u user.Info, cluster string, ttl time.Duration, _ string, persistent bool) (string, error) {
				if persistent || ttl > time.Minute {
					t.Error("a token for one request lasts")
				}
				return u.GetName() + "/" + u.GetGroups()[0] + "/" + cluster, nil
			},
		}
		if got := access.Answers(t.Context(), "c-m-a", false); (got == nil) != want {
			t.Errorf("%d: %v", code, got)
		}
		if path != "/k8s/clusters/c-m-a/readyz" || token != "Bearer system:drover:hub/drover:controllers/c-m-a" {
			t.Errorf("it asked %s with %s", path, token)
		}
	}
}

// TestWithoutTunnels: without tunnels no cluster is reachable.
func TestWithoutTunnels(t *testing.T) {
	var none *Access
	if none.Connected("c-m-a") || none.UsesTunnel(nil, "c-m-a") || none.Revoke(t.Context(), nil, "c-m-a") != nil {
		t.Error("it does")
	}
}

// TestWithProxy: a proxy that does not reach the hub answers "Forbidden", in which nobody would look for a proxy.
func TestWithProxy(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "https://hub.example.com:8443/k8s/clusters/one/readyz", nil)
	refused := errors.New("Forbidden")
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	if err := withProxy(request, refused, direct); err.Error() != "Forbidden" {
		t.Errorf("without a proxy: got %v", err)
	}
	proxy := func(*http.Request) (*url.URL, error) { return url.Parse("http://user:secret@proxy:3128") }
	err := withProxy(request, refused, proxy)
	if want := "through proxy proxy:3128 (hub.example.com is not in NO_PROXY): Forbidden"; err.Error() != want || !errors.Is(err, refused) {
		t.Errorf("got %v, want %s", err, want)
	}
}
