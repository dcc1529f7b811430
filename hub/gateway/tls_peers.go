package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"

	"github.com/drover-dev/drover/hub/peers"
	"github.com/drover-dev/drover/hub/pki"
)

// PeerRoots are the authorities whose certificates for replicas are believed.
func (i *Identity) PeerRoots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(i.ca)
	return pool
}

// PeerTLS is the client's side of TLS between replicas: the other one must serve as the host of serverURL with a certificate of the hub's
// own authority, whatever its address is, and is shown a certificate of the same authority.
func (i *Identity) PeerTLS(serverURL string) (*tls.Config, error) {
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return nil, fmt.Errorf("reading the server URL: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		RootCAs:    i.PeerRoots(),
		ServerName: parsed.Hostname(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return i.peer.Load(), nil
		},
	}, nil
}

// refreshPeer makes a new certificate for this replica where the one it has is not good for long. It is kept in memory only, so that none is
// left behind by a replica that is gone.
func (i *Identity) refreshPeer(ca *pki.Pair) error {
	request := peers.CertificateRequest()
	if have := i.peer.Load(); have != nil && (&pki.Pair{Cert: have.Leaf}).Serves(request, ca, i.now()) {
		return nil
	}
	pair, err := pki.Issue(request, ca, i.now())
	if err != nil {
		return fmt.Errorf("making this replica's certificate: %w", err)
	}
	i.peer.Store(&tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert})
	return nil
}
