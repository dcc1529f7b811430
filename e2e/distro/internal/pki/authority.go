// Package pki makes the certificates of a cluster. An authority that is already on disk is used and never replaced; a
// certificate that an authority issued is issued again when it no longer fits.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"time"
)

// Authority issues certificates.
type Authority struct {
	// Cert is the certificate that signs, the first of its file.
	Cert *x509.Certificate
	// Chain are the intermediates that must follow an issued certificate.
	Chain []*x509.Certificate
	// Key signs.
	Key crypto.Signer
	// PEM is the file of the certificate as it is on disk.
	PEM []byte
}

// EnsureAuthority reads an authority from stem.crt and stem.key, or makes it if neither is there.
func EnsureAuthority(stem, name string, now time.Time) (Authority, error) {
	a, err := ReadAuthority(stem)
	if err == nil {
		return a, nil
	}
	_, errCert := os.Stat(stem + ".crt")
	_, errKey := os.Stat(stem + ".key")
	if !errors.Is(errCert, fs.ErrNotExist) || !errors.Is(errKey, fs.ErrNotExist) {
		return a, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", name, now.Unix())},
		NotBefore: now.Add(-time.Minute), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return a, fmt.Errorf("making authority %s: %w", stem, err)
	}
	if err := writeKey(stem+".key", key); err != nil {
		return a, err
	}
	if err := WriteFile(stem+".crt", encodeCert(der), 0o644); err != nil {
		return a, err
	}
	return ReadAuthority(stem)
}

// ReadAuthority reads an authority from stem.crt and stem.key.
func ReadAuthority(stem string) (Authority, error) {
	raw, err := os.ReadFile(stem + ".crt")
	if err != nil {
		return Authority{}, fmt.Errorf("reading authority: %w", err)
	}
	certs, err := ParseCerts(raw)
	if err != nil {
		return Authority{}, fmt.Errorf("reading authority %s.crt: %w", stem, err)
	}
	key, err := ReadKey(stem + ".key")
	if err != nil {
		return Authority{}, fmt.Errorf("reading authority: %w", err)
	}
	a := Authority{Cert: certs[0], Key: key, PEM: raw}
	if !samePublic(a.Cert.PublicKey, key.Public()) {
		return a, fmt.Errorf("reading authority: %s.key is not the key of %s.crt", stem, stem)
	}
	for _, c := range certs {
		if !bytes.Equal(c.RawIssuer, c.RawSubject) {
			a.Chain = append(a.Chain, c)
		}
	}
	return a, nil
}

// SigningPEM is the certificate that signs, without those that follow it in its file.
func (a Authority) SigningPEM() []byte { return encodeCert(a.Cert.Raw) }

func samePublic(a, b any) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
