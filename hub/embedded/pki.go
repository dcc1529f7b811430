package embedded

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
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// clockSkew is how far in the past a certificate begins, for a machine whose clock is set back a little after boot.
	clockSkew = time.Hour
)

// keyPair is a certificate and its private key together with the files they live in.
type keyPair struct {
	certFile, keyFile string

	cert *x509.Certificate
	key  crypto.Signer
}

// request says what a certificate is for.
type request struct {
	commonName   string
	organization []string
	isCA         bool
	usage        x509.ExtKeyUsage
	dnsNames     []string
	ips          []net.IP
	lifetime     time.Duration
}

// ensure reads the pair from its files and replaces it where it is missing, unreadable, close to its end, signed by another authority
// or not made for this request. signer nil means self-signed.
func ensure(certFile, keyFile string, req request, signer *keyPair, now time.Time) (*keyPair, error) {
	pair, err := readPair(certFile, keyFile)
	if err == nil && pair.serves(req, signer, now) {
		return pair, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return issue(certFile, keyFile, req, signer, now)
}

// serves reports whether the pair can be kept. A third of its lifetime has to be left.
func (p *keyPair) serves(req request, signer *keyPair, now time.Time) bool {
	if now.Before(p.cert.NotBefore) || now.Add(req.lifetime/3).After(p.cert.NotAfter) {
		return false
	}
	if signer != nil && p.cert.CheckSignatureFrom(signer.cert) != nil {
		return false
	}
	sameIPs := slices.EqualFunc(p.cert.IPAddresses, req.ips, net.IP.Equal)
	return sameIPs && p.cert.Subject.CommonName == req.commonName &&
		slices.Equal(p.cert.Subject.Organization, req.organization) && slices.Equal(p.cert.DNSNames, req.dnsNames)
}

func issue(certFile, keyFile string, req request, signer *keyPair, now time.Time) (*keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choosing serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: req.commonName, Organization: req.organization},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(req.lifetime),
		DNSNames:              req.dnsNames,
		IPAddresses:           req.ips,
		BasicConstraintsValid: true,
		IsCA:                  req.isCA,
		KeyUsage:              x509.KeyUsageDigitalSignature,
	}
	parent, parentKey := template, crypto.Signer(key)
	if req.isCA {
		template.KeyUsage |= x509.KeyUsageCertSign
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{req.usage}
	}
	if signer != nil {
		parent, parentKey = signer.cert, signer.key
		if template.NotAfter.After(parent.NotAfter) {
			template.NotAfter = parent.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("signing certificate %s: %w", req.commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing certificate %s: %w", req.commonName, err)
	}
	// The key goes first. A crash between the two leaves a pair that does not match, which readPair reports as absent.
	if err := writeKey(keyFile, key); err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeFile(certFile, certPEM, 0o600); err != nil {
		return nil, err
	}
	return &keyPair{certFile: certFile, keyFile: keyFile, cert: cert, key: key}, nil
}

func writeKey(path string, key crypto.Signer) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encoding key: %w", err)
	}
	return writeFile(path, keyPEM, 0o600)
}

func readPair(certFile, keyFile string) (*keyPair, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("reading certificate: %w", err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("reading certificate: %s holds no PEM block", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s: %w", certFile, err)
	}
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	if public, ok := key.Public().(*ecdsa.PublicKey); !ok || !public.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("certificate %s and key %s do not belong together: %w", certFile, keyFile, os.ErrNotExist)
	}
	return &keyPair{certFile: certFile, keyFile: keyFile, cert: cert, key: key}, nil
}

func readKey(path string) (crypto.Signer, error) {
	parsed, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("reading key: %s is a %T", path, parsed)
	}
	return key, nil
}
