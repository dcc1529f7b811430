package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxAuthorities bounds a bundle; a rotation needs two or three.
const maxAuthorities = 32

// ParseBundle reads certificates of PEM. There is at least one in what it returns.
func ParseBundle(raw []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for len(raw) > 0 {
		var block *pem.Block
		if block, raw = pem.Decode(raw); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing certificate: %w", err)
		}
		if certs = append(certs, cert); len(certs) > maxAuthorities {
			return nil, fmt.Errorf("there are more than %d certificates", maxAuthorities)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return certs, nil
}

// EncodeBundle is the PEM of certificates.
func EncodeBundle(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // a buffer takes everything
	}
	return out.Bytes()
}

// Fits tells whether a server that showed chain for a name is trusted by roots. What others are offered as intermediates helps to find a
// way and is not trusted by itself.
func Fits(roots, chain, others []*x509.Certificate, name string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the server showed no certificate")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: name, Roots: pool(roots), Intermediates: pool(slices.Concat(chain[1:], others)), CurrentTime: now,
	})
	return err
}

// SignedByOld picks from the authorities that a hub offers those that the old ones vouch for: it is one of them, one of them has signed
// it, or it is another certificate of the same name and key as such a one. There must be so many that the chain that the hub showed for
// its name is good with them. The offer may have come from anybody.
func SignedByOld(old, offered, chain []*x509.Certificate, name string, now time.Time) ([]*x509.Certificate, error) {
	var accepted []*x509.Certificate
	for _, cert := range offered {
		if isAuthority(cert) && vouched(old, offered, chain, cert, now) {
			accepted = append(accepted, cert)
		}
	}
	for _, cert := range offered {
		same := func(other *x509.Certificate) bool {
			return bytes.Equal(cert.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo) && bytes.Equal(cert.RawSubject, other.RawSubject)
		}
		if isAuthority(cert) && !slices.ContainsFunc(accepted, cert.Equal) && slices.ContainsFunc(accepted, same) {
			accepted = append(accepted, cert)
		}
	}
	if len(accepted) == 0 {
		return nil, errors.New("none of the authorities that the hub offers is signed by one that this machine trusts")
	}
	if err := Fits(accepted, chain, nil, name, now); err != nil {
		return nil, fmt.Errorf("the hub's certificate is not of an authority that is signed by one that this machine trusts: %w", err)
	}
	return accepted, nil
}

func isAuthority(cert *x509.Certificate) bool {
	return cert.BasicConstraintsValid && cert.IsCA && (cert.KeyUsage == 0 || cert.KeyUsage&x509.KeyUsageCertSign != 0)
}

func vouched(old, offered, chain []*x509.Certificate, cert *x509.Certificate, now time.Time) bool {
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: pool(old), Intermediates: pool(slices.Concat(offered, chain)), CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err == nil
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range certs {
		pool.AddCert(cert)
	}
	return pool
}
