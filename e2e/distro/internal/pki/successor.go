package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// CheckSuccessor reports what keeps an authority from following another one, all in PEM: who trusts the previous one must trust it, so the
// new file has to hold a certificate that the roots of the previous one have signed, with what is between them, and the key of its first
// certificate.
func CheckSuccessor(previous, cert, key []byte) error {
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Errorf("certificate and key do not belong together: %w", err)
	}
	before, err := ParseCerts(previous)
	if err != nil {
		return fmt.Errorf("the certificate in use: %w", err)
	}
	now, err := ParseCerts(cert)
	if err != nil {
		return err
	}
	if !now[0].IsCA {
		return errors.New("the first certificate is not that of an authority")
	}
	if len(now) == 1 {
		return errors.New("new CA bundle contains only a single certificate but should include root or intermediate CA certificates")
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range before {
		if c.CheckSignatureFrom(c) == nil {
			roots.AddCert(c)
		} else {
			between.AddCert(c)
		}
	}
	for _, c := range now[1:] {
		between.AddCert(c)
	}
	how := x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := now[0].Verify(how); err != nil {
		return fmt.Errorf("new CA cert cannot be verified using old CA chain: %w", err)
	}
	return nil
}
