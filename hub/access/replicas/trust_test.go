package replicas

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/wait"
)

// TestConnectionsEndBeforeTheirCertificate: a connection that is always in use is replaced by one with the certificate that the replica has
// by then, and the requests of neither are those of a client without a certificate.
func TestConnectionsEndBeforeTheirCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	b := newReplica(t, "b", ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s peer=%t", r.RemoteAddr, FromPeer(r))
	}))
	issue := func(ago time.Duration) *tls.Certificate {
		t.Helper()
		request := CertificateRequest()
		request.Lifetime = time.Hour
		pair, err := pki.Issue(request, ca.pair, time.Now().Add(-ago))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}
	}
	for _, http2 := range []bool{true, false} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			var present atomic.Pointer[tls.Certificate]
			transport := newTransport(&tls.Config{RootCAs: ca.roots, ServerName: "hub.test",
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return present.Load(), nil }}, http2)
			defer transport.CloseIdleConnections()
			ask := func() string {
				t.Helper()
				r := request(t, http.MethodGet, "/k8s/clusters/c-1", nil)
				r.URL.Host = b.member().Address
				response, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				body, err := io.ReadAll(response.Body)
				if err != nil || !strings.HasSuffix(string(body), " peer=true") {
					t.Fatalf("%q, %v", body, err)
				}
				return string(body)
			}
			present.Store(issue(50 * time.Minute))
			first := ask()
			present.Store(issue(0))
			wait.Until(t, timeout, "another connection", func() bool { return ask() != first })
			second := ask()
			for range 10 {
				if next := ask(); next != second {
					t.Errorf("a connection with a new certificate is replaced, too: %s, and then %s", second, next)
				}
			}
		})
	}
}

// TestEndsSoon: a replica has renewed its certificate, for which it looks once an hour, when its connections are closed.
func TestEndsSoon(t *testing.T) {
	now := time.Now()
	cert := &x509.Certificate{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLifetime)}
	if at := pki.RenewAt(cert, certificateLifetime).Add(2 * time.Hour); endsSoon(cert, at) {
		t.Errorf("connections are closed at %s already", at)
	}
	if at := cert.NotAfter.Add(-6 * time.Hour); !endsSoon(cert, at) {
		t.Errorf("connections are not closed yet at %s", at)
	}
}
