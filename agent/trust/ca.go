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

// maxBundle bounds the certificates of a bundle; a rotation needs two or three.
const maxBundle = 32

// ParseBundle decodes PEM certificates and ignores other blocks. It returns at least one and at most 32 certificates, or an error.
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
		if certs = append(certs, cert); len(certs) > maxBundle {
			return nil, fmt.Errorf("more than %d certificates", maxBundle)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate found")
	}
	return certs, nil
}

// EncodeBundle returns certificates as PEM.
func EncodeBundle(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // a buffer does not fail
	}
	return out.Bytes()
}

// VerifyChain verifies the certificate chain of a server for a name, leaf first, with roots as the only trusted CAs.
func VerifyChain(roots, chain []*x509.Certificate, name string, now time.Time) error {
	if len(chain) == 0 {
		return errors.New("the server sent no certificate")
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: pool(roots), Intermediates: pool(chain[1:]), CurrentTime: now})
	return err
}

// AcceptCAs returns the offered CAs that may replace the trusted ones: a CA is accepted if it is trusted, if a trusted one has signed it,
// or if it has name and key of such a one. The chain that the hub has sent for its name must verify with the accepted CAs. The offer
// itself may come from anybody.
func AcceptCAs(trusted, offered, chain []*x509.Certificate, name string, now time.Time) ([]*x509.Certificate, error) {
	var accepted []*x509.Certificate
	for _, cert := range offered {
		if isCA(cert) && signed(trusted, offered, chain, cert, now) {
			accepted = append(accepted, cert)
		}
	}
	for _, cert := range offered {
		same := func(other *x509.Certificate) bool {
			return bytes.Equal(cert.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo) && bytes.Equal(cert.RawSubject, other.RawSubject)
		}
		if isCA(cert) && !slices.ContainsFunc(accepted, cert.Equal) && slices.ContainsFunc(accepted, same) {
			accepted = append(accepted, cert)
		}
	}
	if len(accepted) == 0 {
		return nil, errors.New("no CA of the hub is signed by a CA that this machine trusts")
	}
	if err := VerifyChain(accepted, chain, name, now); err != nil {
		return nil, fmt.Errorf("the hub's certificate is not signed by an accepted CA: %w", err)
	}
	return accepted, nil
}

func isCA(cert *x509.Certificate) bool {
	return cert.BasicConstraintsValid && cert.IsCA && (cert.KeyUsage == 0 || cert.KeyUsage&x509.KeyUsageCertSign != 0)
}

// signed is true if cert has a chain to a trusted CA.
func signed(trusted, offered, chain []*x509.Certificate, cert *x509.Certificate, now time.Time) bool {
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: pool(trusted), Intermediates: pool(slices.Concat(offered, chain)), CurrentTime: now,
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
