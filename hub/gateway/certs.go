package gateway

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	servingLifetime = 365 * 24 * time.Hour
	// renewBefore the end of its life, a serving certificate is replaced.
	renewBefore = servingLifetime / 3
	// clockSkew is how far behind this hub's clock a machine's may be.
	clockSkew = time.Hour
	// maxNames bounds what one serving certificate answers for.
	maxNames = 64
)

// keyPair is a certificate with its private key, parsed and as PEM.
type keyPair struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
	keyPEM  []byte
}

// parseKeyPair reads what keyPair's PEM fields hold.
func parseKeyPair(certPEM, keyPEM []byte) (*keyPair, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing the certificate: %w", err)
	}
	block, _ = pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("no PEM private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The error of x509 may quote nothing of a key, but it says nothing useful either.
		return nil, errors.New("the private key is not in PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the private key does not belong to the certificate")
	}
	return &keyPair{cert: cert, key: key, certPEM: certPEM, keyPEM: keyPEM}, nil
}

// newCA makes a certificate authority that may sign serving certificates and nothing below itself.
func newCA(now time.Time) (*keyPair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("drover-gateway-ca@%d", now.Unix())},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil)
}

// newServing makes a certificate for names, which are host names and IP addresses.
func newServing(ca *keyPair, names []string, now time.Time) (*keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "drover-gateway"},
		NotBefore:   now.Add(-clockSkew),
		NotAfter:    now.Add(servingLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	return issue(template, ca)
}

// issue signs template, with its own new key where ca is nil.
func issue(template *x509.Certificate, ca *keyPair) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("generating a serial number: %w", err)
	}
	template.SerialNumber = serial
	parent, signer := template, key
	if ca != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", template.Subject.CommonName, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return parseKeyPair(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// names returns what a serving certificate is for, sorted.
func (p *keyPair) names() []string {
	names := slices.Clone(p.cert.DNSNames)
	for _, ip := range p.cert.IPAddresses {
		names = append(names, ip.String())
	}
	slices.Sort(names)
	return names
}

// whyReplace tells why a serving certificate must be replaced; empty means it is good.
func (p *keyPair) whyReplace(ca *keyPair, names []string, now time.Time) string {
	switch {
	case !bytes.Equal(p.cert.RawIssuer, ca.cert.RawSubject) || p.cert.CheckSignatureFrom(ca.cert) != nil:
		return "another certificate authority signed it"
	case now.After(p.cert.NotAfter.Add(-renewBefore)) && p.cert.NotAfter.Before(ca.cert.NotAfter):
		return "it expires soon"
	case now.After(p.cert.NotAfter):
		return "it has expired"
	}
	have := p.names()
	for _, name := range names {
		if _, found := slices.BinarySearch(have, name); !found {
			return "it is not for " + name
		}
	}
	return ""
}
