package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// RenewDays is how many days before its end a certificate is renewed by a start.
const RenewDays = 120

// The states of a certificate.
const (
	OK          = "OK"
	Warning     = "WARNING"
	Expired     = "EXPIRED"
	NotYetValid = "NOT YET VALID"
)

// Certificate is one on disk; the names of its fields are those of k3s's output.
type Certificate struct {
	Filename, Subject, Issuer string
	// Usages are of ServerAuth, ClientAuth and CertSign.
	Usages []string
	// ExpiryTime is the end, or the beginning of one that is not valid yet. ResidualTime is until the end.
	ExpiryTime   time.Time
	ResidualTime time.Duration
	Status       string
}

// Check reads the certificates of services.
func Check(data layout.Data, services []string, now time.Time) ([]Certificate, error) {
	files, err := stems(data, services)
	if err != nil {
		return nil, err
	}
	out := []Certificate{}
	for _, stem := range files {
		raw, err := os.ReadFile(stem + ".crt")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		certs, err := pki.ParseCerts(raw)
		if err != nil {
			return nil, fmt.Errorf("reading %s.crt: %w", stem, err)
		}
		for _, c := range certs {
			out = append(out, describe(filepath.Base(stem)+".crt", c, now))
		}
	}
	return out, nil
}

func describe(name string, c *x509.Certificate, now time.Time) Certificate {
	out := Certificate{Filename: name, Subject: c.Subject.CommonName, Issuer: c.Issuer.CommonName, Usages: []string{},
		ExpiryTime: c.NotAfter, ResidualTime: c.NotAfter.Sub(now), Status: OK}
	if c.KeyUsage&x509.KeyUsageCertSign != 0 {
		out.Usages = append(out.Usages, "CertSign")
	}
	for _, u := range []struct {
		usage x509.ExtKeyUsage
		name  string
	}{{x509.ExtKeyUsageServerAuth, "ServerAuth"}, {x509.ExtKeyUsageClientAuth, "ClientAuth"}} {
		if slices.Contains(c.ExtKeyUsage, u.usage) {
			out.Usages = append(out.Usages, u.name)
		}
	}
	switch {
	case now.Before(c.NotBefore):
		out.Status, out.ExpiryTime = NotYetValid, c.NotBefore
	case now.After(c.NotAfter):
		out.Status = Expired
	case now.AddDate(0, 0, RenewDays).After(c.NotAfter):
		out.Status = Warning
	}
	return out
}
