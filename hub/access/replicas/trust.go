package replicas

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
)

const (
	// HeaderIdentity holds who sent a request that another replica forwards.
	HeaderIdentity = "X-Drover-Identity"
	// headerForwarded holds the ID of the replica that forwards a request.
	headerForwarded = "X-Drover-Forwarded-By"
)

// certificateLifetime is how long the certificate of a replica lasts. Each has its own, never written anywhere, and makes a new one long
// before.
const certificateLifetime = 48 * time.Hour

// peerName is the name in a certificate that makes it one of a replica. No certificate that the hub's authorities sign for others has a
// name of this form.
var peerName = &url.URL{Scheme: "drover", Host: "hub", Path: "/replica"}

// CertificateRequest is what the gateway's authority has to sign for a replica.
func CertificateRequest() pki.Request {
	return pki.Request{
		CommonName: "drover-hub-replica", Usage: x509.ExtKeyUsageClientAuth, URIs: []*url.URL{peerName}, Lifetime: certificateLifetime,
	}
}

// trust judges certificates.
type trust struct {
	roots *x509.CertPool

	mu sync.Mutex
	// good are certificates that have been verified, by their sum, and until when they are good.
	good map[[sha256.Size]byte]time.Time
}

// maxVerified is far more than the certificates that replicas have within the lifetime of one.
const maxVerified = 1024

func newTrust(roots *x509.CertPool) *trust {
	return &trust{roots: roots, good: map[[sha256.Size]byte]time.Time{}}
}

// replicaCertificate returns the certificate of a request if it names a replica, not verified; nil for all other requests.
func replicaCertificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	cert := r.TLS.PeerCertificates[0]
	if !slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return u.String() == peerName.String() }) {
		return nil
	}
	return cert
}

// endsSoon reports whether a certificate has less than a sixth of its lifetime left. Its replica renews it when a third is left.
func endsSoon(cert *x509.Certificate, now time.Time) bool {
	return now.After(cert.NotAfter.Add(-cert.NotAfter.Sub(cert.NotBefore) / 6))
}

// replica reports whether a request is one of a replica, which has this certificate; nil is none.
func (t *trust) replica(r *http.Request, cert *x509.Certificate) bool {
	if t.roots == nil || cert == nil {
		return false
	}
	now := time.Now()
	sum := sha256.Sum256(cert.Raw)
	t.mu.Lock()
	until, known := t.good[sum]
	t.mu.Unlock()
	if known {
		return now.Before(until)
	}
	intermediates := x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	if _, err := cert.Verify(x509.VerifyOptions{
		Roots: t.roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.good) >= maxVerified {
		clear(t.good)
	}
	t.good[sum] = cert.NotAfter
	return true
}

type fromPeer struct{}

// FromPeer reports whether a request comes from another replica, which Handler has found out.
func FromPeer(r *http.Request) bool {
	from, _ := r.Context().Value(fromPeer{}).(bool)
	return from
}

// Handler marks the requests of replicas for FromPeer, and takes from all others the headers that only replicas may send. It goes around
// everything that the gateway serves.
//
// It closes connections of replicas whose certificate ends soon, those of HTTP/2 once the requests on them have ended: a connection that is
// always in use would outlast its certificate, and then its requests would be those of a client without credentials.
func (d *Directory) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cert := replicaCertificate(r)
		if cert != nil && !isUpgrade(r) && endsSoon(cert, time.Now()) {
			w.Header().Set("Connection", "close")
		}
		if d.trust.replica(r, cert) {
			r = r.WithContext(context.WithValue(r.Context(), fromPeer{}, true))
		} else {
			r.Header.Del(HeaderIdentity)
			r.Header.Del(headerForwarded)
		}
		next.ServeHTTP(w, r)
	})
}
