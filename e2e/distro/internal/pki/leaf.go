package pki

import (
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
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

// Leaf says what a certificate is for.
type Leaf struct {
	CommonName   string
	Organization []string
	// Names are DNS names and IP addresses; a certificate with names serves, all certificates may be shown by a client.
	Names []string
}

// Lifetime is how long an issued certificate is good, unless LifetimeVariable says another number of days; it is issued again on a start in
// its last renewBefore.
const (
	Lifetime    = 365 * 24 * time.Hour
	renewBefore = 120 * 24 * time.Hour
)

// LifetimeVariable is the variable of the environment by which k3s and RKE2 are told how many days a certificate is good, a variable of
// rancher/dynamiclistener.
const LifetimeVariable = "CATTLE_NEW_SIGNED_CERT_EXPIRATION_DAYS"

// lifetime of a certificate that is issued now. As there, a number that cannot be read means the default.
func lifetime() time.Duration {
	if days, err := strconv.Atoi(os.Getenv(LifetimeVariable)); err == nil {
		return time.Duration(days) * 24 * time.Hour
	}
	return Lifetime
}

// Ensure writes stem.crt and stem.key, unless they are there, signed by a, for the same names, and good for a while.
func (a Authority) Ensure(stem string, leaf Leaf, now time.Time) error {
	key, err := EnsureKey(stem + ".key")
	if err != nil {
		return err
	}
	if raw, err := os.ReadFile(stem + ".crt"); err == nil && a.fits(raw, key.Public(), leaf, now) {
		return nil
	}
	raw, err := a.Issue(key.Public(), leaf, now)
	if err != nil {
		return fmt.Errorf("issuing %s.crt: %w", stem, err)
	}
	return WriteFile(stem+".crt", raw, 0o644)
}

// Issue signs a certificate for a public key and returns it as PEM, followed by the intermediates.
func (a Authority) Issue(public crypto.PublicKey, leaf Leaf, now time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organization},
		NotBefore: a.Cert.NotBefore, NotAfter: now.Add(lifetime()),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(leaf.Names) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	template.DNSNames, template.IPAddresses = split(leaf.Names)
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, public, a.Key)
	if err != nil {
		return nil, err
	}
	out := encodeCert(der)
	for _, c := range a.Chain {
		out = append(out, encodeCert(c.Raw)...)
	}
	return out, nil
}

func (a Authority) fits(raw []byte, public crypto.PublicKey, leaf Leaf, now time.Time) bool {
	certs, err := ParseCerts(raw)
	if err != nil {
		return false
	}
	c := certs[0]
	dns, ips := split(leaf.Names)
	return c.CheckSignatureFrom(a.Cert) == nil && samePublic(c.PublicKey, public) && now.Add(renewBefore).Before(c.NotAfter) &&
		c.Subject.CommonName == leaf.CommonName && slices.Equal(c.Subject.Organization, leaf.Organization) &&
		slices.Equal(c.DNSNames, dns) && slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal)
}

func split(names []string) (dns []string, ips []net.IP) {
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			if !slices.ContainsFunc(ips, ip.Equal) {
				ips = append(ips, ip)
			}
		} else if n != "" && !slices.Contains(dns, n) {
			dns = append(dns, n)
		}
	}
	return dns, ips
}

// EnsureKey reads a private key, or makes it if the file is not there.
func EnsureKey(file string) (crypto.Signer, error) {
	key, err := ReadKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return fresh, writeKey(file, fresh)
}
