// Package pki creates, encodes and checks the hub's keys and X.509 certificates. Certificates are values, which their owners keep:
// gateway/servingcert in drover-gateway-tls, controllers in the Secrets of clusters. Keys that exist once for a hub are kept by
// KeySecret: of package signing in drover-plan-signing, of package tokens in drover-token-key.
package pki

import (
	"crypto"
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
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	// CALifetime and LeafLifetime are the lifetimes that the hub's own authorities and certificates have.
	CALifetime   = 10 * 365 * 24 * time.Hour
	LeafLifetime = 365 * 24 * time.Hour
	// clockSkew is how far in the past a certificate begins, for a machine whose clock is set back a little after boot.
	clockSkew = time.Hour
	// localTimeSkew is that of authorities and of certificates for a year: the hub may issue them at its first start, while its clock is
	// ahead. A hardware clock that has the local time, and is read as UTC, is wrong by up to 14 hours until it is corrected.
	localTimeSkew = 24 * time.Hour
)

// Pair is a certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Request says what a certificate is for.
type Request struct {
	CommonName   string
	Organization []string
	// IsCA is set for an authority. Usage is for all others.
	IsCA     bool
	Usage    x509.ExtKeyUsage
	DNSNames []string
	IPs      []net.IP
	URIs     []*url.URL
	// Lifetime begins now, and is cut to that of the signer.
	Lifetime time.Duration
}

// ServerRequest is for the certificate of a server with these host names and IP addresses.
func ServerRequest(commonName string, hosts []string) Request {
	request := Request{CommonName: commonName, Usage: x509.ExtKeyUsageServerAuth, Lifetime: LeafLifetime}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			request.IPs = append(request.IPs, ip)
		} else {
			request.DNSNames = append(request.DNSNames, host)
		}
	}
	return request
}

// Ensure returns the pair in the data of a Secret, or issues one and puts it there if that does not serve the request any more. It reports
// whether it has changed the data.
func Ensure(
	data map[string][]byte, certKey, keyKey string, req Request, signer *Pair, now time.Time,
) (pair *Pair, changed bool, err error) {
	if pair, err := Parse(data[certKey], data[keyKey]); err == nil && pair.Serves(req, signer, now) {
		return pair, false, nil
	}
	if pair, err = Issue(req, signer, now); err != nil {
		return nil, false, err
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, false, err
	}
	data[certKey], data[keyKey] = pair.CertPEM(), key
	return pair, true, nil
}

// Issue creates a key and a certificate for it, signed by signer or, if that is nil, self-signed. No certificate outlives its signer.
func Issue(req Request, signer *Pair, now time.Time) (*Pair, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: req.CommonName, Organization: req.Organization},
		NotAfter:    now.Add(req.Lifetime),
		DNSNames:    req.DNSNames,
		IPAddresses: req.IPs,
		URIs:        req.URIs,
		IsCA:        req.IsCA,
		KeyUsage:    x509.KeyUsageDigitalSignature,
	}
	if req.IsCA {
		template.KeyUsage |= x509.KeyUsageCertSign
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{req.Usage}
	}
	if signer == nil {
		signer = &Pair{Cert: template, Key: key}
	}
	cert, err := sign(template, key.Public(), signer, now)
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: cert, Key: key}, nil
}

// CrossSign returns the certificate of an authority, signed by another one: whoever trusts the signer can verify by it what ca has
// signed. It lasts no longer than either.
func CrossSign(ca, signer *Pair, now time.Time) (*x509.Certificate, error) {
	return sign(&x509.Certificate{
		Subject: ca.Cert.Subject, SubjectKeyId: ca.Cert.SubjectKeyId, NotAfter: ca.Cert.NotAfter, IsCA: true, KeyUsage: ca.Cert.KeyUsage,
	}, ca.Cert.PublicKey, signer, now)
}

// sign completes a template and signs it. The certificate ends with its signer at the latest.
func sign(template *x509.Certificate, public crypto.PublicKey, signer *Pair, now time.Time) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	if template.NotAfter.After(signer.Cert.NotAfter) {
		template.NotAfter = signer.Cert.NotAfter
	}
	template.NotBefore, template.BasicConstraintsValid = now.Add(-clockSkew), true
	if template.NotAfter.Sub(now) >= LeafLifetime {
		template.NotBefore = now.Add(-localTimeSkew)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Cert, public, signer.Key)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate %s: %w", template.Subject.CommonName, err)
	}
	return cert, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing serial number: %w", err)
	}
	return serial, nil
}

// NewKey generates an ECDSA key on the curve P-256.
func NewKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating key: %w", err)
	}
	return key, nil
}

// Serves reports whether the pair is still good for the request: it was issued for it, by this signer (nil: any), and has a third of its
// lifetime left.
func (p *Pair) Serves(req Request, signer *Pair, now time.Time) bool {
	if RenewalDue(p.Cert, req.Lifetime, now) {
		return false
	}
	if signer != nil && p.Cert.CheckSignatureFrom(signer.Cert) != nil {
		return false
	}
	return p.Cert.Subject.CommonName == req.CommonName &&
		p.Cert.IsCA == req.IsCA &&
		slices.Equal(p.Cert.Subject.Organization, req.Organization) &&
		slices.Equal(p.Cert.DNSNames, req.DNSNames) &&
		slices.EqualFunc(p.Cert.IPAddresses, req.IPs, net.IP.Equal)
}

// RenewAt is the time after which a certificate that was requested for this lifetime has to be renewed: a third of it is left, or of the
// certificate's own lifetime where that was cut to the end of its signer.
func RenewAt(cert *x509.Certificate, lifetime time.Duration) time.Time {
	return cert.NotAfter.Add(-min(lifetime, cert.NotAfter.Sub(cert.NotBefore)) / 3)
}

// RenewalDue reports whether a certificate that was requested for this lifetime has to be renewed. It is also true of one that is not valid
// yet: the clock was ahead when it was issued, or is behind now.
func RenewalDue(cert *x509.Certificate, lifetime time.Duration, now time.Time) bool {
	return now.Before(cert.NotBefore) || now.After(RenewAt(cert, lifetime))
}

// CertPEM is the certificate as PEM.
func (p *Pair) CertPEM() []byte { return EncodeCert(p.Cert) }

// EncodeCert is a certificate as PEM.
func EncodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// KeyPEM is the private key as PEM.
func (p *Pair) KeyPEM() ([]byte, error) {
	raw, err := keyutil.MarshalPrivateKeyToPEM(p.Key)
	if err != nil {
		return nil, fmt.Errorf("encoding key: %w", err)
	}
	return raw, nil
}

// Parse decodes a pair from PEM, and fails if certificate and key do not belong together.
func Parse(certPEM, keyPEM []byte) (*Pair, error) {
	cert, err := ParseCert(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	public, ok := key.Public().(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(cert.PublicKey) {
		return nil, errors.New("certificate and key do not belong together")
	}
	return &Pair{Cert: cert, Key: key}, nil
}

// ParseCert decodes the first certificate in PEM.
func ParseCert(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM block with a certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate: %w", err)
	}
	return cert, nil
}

// ParseKey decodes a private key in PEM.
func ParseKey(keyPEM []byte) (crypto.Signer, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("parsing key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parsing key: %T cannot sign", parsed)
	}
	return key, nil
}
