package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func read(t *testing.T, file string) []byte {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// foreign writes an RSA authority in the encoding that Cluster API uses, signed by parent if there is one.
func foreign(t *testing.T, stem, name string, parent *Authority) Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(now.Unix()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.AddDate(5, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	signer, by := any(key), template
	if parent != nil {
		signer, by = parent.Key, parent.Cert
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	raw := encodeCert(der)
	if parent != nil {
		raw = append(raw, parent.PEM...)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	for file, content := range map[string][]byte{stem + ".crt": raw, stem + ".key": block} {
		if err := WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ReadAuthority(stem)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuthorityIsMadeOnce(t *testing.T) {
	stem := filepath.Join(t.TempDir(), "tls", "server-ca")
	first, err := EnsureAuthority(stem, "k3s-server-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := EnsureAuthority(stem, "k3s-server-ca", now.Add(time.Hour))
	if err != nil || !bytes.Equal(first.PEM, second.PEM) {
		t.Errorf("the authority changed: %v", err)
	}
	if info, _ := os.Stat(stem + ".key"); info.Mode() != 0o600 {
		t.Errorf("its key has mode %v", info.Mode())
	}
}

func TestAuthorityInPlaceIsUsed(t *testing.T) {
	dir := t.TempDir()
	root := foreign(t, filepath.Join(dir, "root"), "root", nil)
	foreign(t, filepath.Join(dir, "client-ca"), "between", &root)
	before := read(t, filepath.Join(dir, "client-ca.crt"))

	a, err := EnsureAuthority(filepath.Join(dir, "client-ca"), "unused", now)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, read(t, filepath.Join(dir, "client-ca.crt"))) {
		t.Error("the file was replaced")
	}
	leaf := Leaf{CommonName: "admin", Organization: []string{"system:masters"}}
	if err := a.Ensure(filepath.Join(dir, "admin"), leaf, now); err != nil {
		t.Fatal(err)
	}
	chain, err := ParseCerts(read(t, filepath.Join(dir, "admin.crt")))
	if err != nil || len(chain) != 2 {
		t.Fatalf("the leaf is not followed by the authority between: %d certificates, %v", len(chain), err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(root.Cert)
	between.AddCert(chain[1])
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Error(err)
	}
}

func TestAuthorityFaults(t *testing.T) {
	dir := t.TempDir()
	foreign(t, filepath.Join(dir, "a"), "a", nil)
	foreign(t, filepath.Join(dir, "b"), "b", nil)
	if err := os.Rename(filepath.Join(dir, "b.key"), filepath.Join(dir, "a.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureAuthority(filepath.Join(dir, "a"), "a", now); err == nil || !strings.Contains(err.Error(), "is not the key of") {
		t.Errorf("got %v", err)
	}
	if _, err := EnsureAuthority(filepath.Join(dir, "b"), "b", now); err == nil {
		t.Error("an authority without its key was replaced")
	}
}

func TestLeafIsIssuedAnew(t *testing.T) {
	dir := t.TempDir()
	a, err := EnsureAuthority(filepath.Join(dir, "ca"), "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := EnsureAuthority(filepath.Join(dir, "other"), "other", now)
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{CommonName: "api", Names: []string{"localhost", "127.0.0.1"}}
	wider := Leaf{CommonName: "api", Names: []string{"localhost", "127.0.0.1", "10.0.0.1"}}
	for _, step := range []struct {
		name    string
		by      Authority
		leaf    Leaf
		at      time.Time
		changes bool
	}{
		{"the first time", a, leaf, now, true},
		{"not again", a, leaf, now.Add(24 * time.Hour), false},
		{"for another name", a, wider, now, true},
		{"near its end", a, wider, now.Add(Lifetime - 24*time.Hour), true},
		{"by another authority", other, wider, now, true},
	} {
		before, _ := os.ReadFile(filepath.Join(dir, "leaf.crt"))
		if err := step.by.Ensure(filepath.Join(dir, "leaf"), step.leaf, step.at); err != nil {
			t.Fatal(err)
		}
		if changed := !bytes.Equal(before, read(t, filepath.Join(dir, "leaf.crt"))); changed != step.changes {
			t.Errorf("%s: issued again: %v", step.name, changed)
		}
	}
}

func TestLifetime(t *testing.T) {
	for value, want := range map[string]time.Duration{"": Lifetime, "7": 7 * 24 * time.Hour, "a week": Lifetime} {
		t.Setenv(LifetimeVariable, value)
		if got := lifetime(); got != want {
			t.Errorf("%s=%q: %s, want %s", LifetimeVariable, value, got, want)
		}
	}
}
