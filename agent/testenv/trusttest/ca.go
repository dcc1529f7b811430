// Package trusttest creates certificate authorities (CAs) for tests. Certificates are valid from an hour or two ago for an hour.
package trusttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// CA is a certificate authority with its key.
type CA struct {
	// Cert is the certificate of the CA.
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA creates a self-signed CA with a common name.
func NewCA(t *testing.T, name string) *CA {
	t.Helper()
	return NewCAUntil(t, name, time.Now().Add(time.Hour))
}

// NewCAUntil creates a self-signed CA that expires at end.
func NewCAUntil(t *testing.T, name string, end time.Time) *CA {
	t.Helper()
	ca := &CA{key: newKey(t)}
	template := authority(t, name)
	template.NotAfter = end
	ca.Cert = sign(t, template, template, ca.key, ca.key)
	return ca
}

// PEM returns the certificate of the CA as PEM.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})
}

// CrossSign returns a certificate with name and key of other, signed by ca.
func (ca *CA) CrossSign(t *testing.T, other *CA) *x509.Certificate {
	t.Helper()
	template := authority(t, other.Cert.Subject.CommonName)
	template.SubjectKeyId = other.Cert.SubjectKeyId
	return sign(t, template, ca.Cert, other.key, ca.key)
}

// Serve issues a serving certificate for an IP address.
func (ca *CA) Serve(t *testing.T, address string) tls.Certificate {
	t.Helper()
	return ca.ServeBetween(t, address, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// ServeBetween issues a serving certificate for an IP address that is valid between two times.
func (ca *CA) ServeBetween(t *testing.T, address string, from, to time.Time) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: "hub"}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(address)}}
	leaf := sign(t, template, ca.Cert, key, ca.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func authority(t *testing.T, name string) *x509.Certificate {
	return &x509.Certificate{SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sign(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
