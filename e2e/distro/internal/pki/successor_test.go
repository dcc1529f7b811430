package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// successor signs a new authority and returns its certificate, followed by that of whoever signed it, and its key.
func successor(t *testing.T, by Authority, isCA bool) (cert, key []byte) {
	t.Helper()
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "new"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, IsCA: isCA, BasicConstraintsValid: true,
	}, by.Cert, fresh.Public(), by.Key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(fresh)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(encodeCert(der), by.PEM), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

func TestCheckSuccessor(t *testing.T) {
	dir := t.TempDir()
	old, err := EnsureAuthority(filepath.Join(dir, "old"), "old", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := EnsureAuthority(filepath.Join(dir, "other"), "other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := successor(t, old, true)
	foreign, foreignKey := successor(t, other, true)
	leaf, leafKey := successor(t, old, false)
	for _, tc := range []struct {
		name      string
		cert, key []byte
		want      string
	}{
		{"signed by the old one", cert, key, ""},
		{"with another key", cert, foreignKey, "do not belong together"},
		{"signed by another one", foreign, foreignKey, "cannot be verified using old CA chain"},
		{"alone", cert[:strings.Index(string(cert), "-----END")+len("-----END CERTIFICATE-----\n")], key, "only a single certificate"},
		{"no authority", leaf, leafKey, "not that of an authority"},
		{"nothing", nil, nil, "do not belong together"},
	} {
		err := CheckSuccessor(old.PEM, tc.cert, tc.key)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
