package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// ClientTLS reads the client certificate stem.crt and stem.key and the authority of the server it is for.
func ClientTLS(stem, caFile string) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(stem+".crt", stem+".key")
	if err != nil {
		return nil, fmt.Errorf("reading a client certificate: %w", err)
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading an authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("no certificate in %s", caFile)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}, nil
}
