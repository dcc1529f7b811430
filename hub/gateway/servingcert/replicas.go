package servingcert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/identity/pki"
)

// PeerRoots returns the authorities of the client certificates of replicas.
func (i *Identity) PeerRoots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(i.ca)
	return pool
}

// PeerTLS returns the client configuration between replicas: the other replica must serve as the host of serverURL, whatever its address
// is, and both prove themselves with certificates of the gateway's authority.
func (i *Identity) PeerTLS(serverURL string) (*tls.Config, error) {
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return nil, fmt.Errorf("reading the server URL: %w", err)
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              i.PeerRoots(),
		ServerName:           parsed.Hostname(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.peer.Load(), nil },
	}, nil
}

// refreshPeer issues a client certificate for this replica unless the present one is valid for long enough. It is kept in memory only, so
// that a replica leaves none behind.
func (i *Identity) refreshPeer(ca *pki.Pair) error {
	request := replicas.CertificateRequest()
	if have := i.peer.Load(); have != nil && (&pki.Pair{Cert: have.Leaf}).Serves(request, ca, i.now()) {
		return nil
	}
	pair, err := pki.Issue(request, ca, i.now())
	if err != nil {
		return fmt.Errorf("issuing this replica's certificate: %w", err)
	}
	i.peer.Store(&tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert})
	return nil
}
