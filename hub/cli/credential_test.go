package cli

import (
	"context"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestWatchCredential: that the certificate of --kubeconfig ends is in the log once a day, from 60 days before.
func TestWatchCredential(t *testing.T) { synctest.Test(t, testWatchCredential) }

func testWatchCredential(t *testing.T) {
	const day = 24 * time.Hour
	pair, err := pki.Issue(pki.Request{CommonName: "hub", Usage: x509.ExtKeyUsageClientAuth, Lifetime: 365 * day}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "client.crt")
	if err := os.WriteFile(file, pair.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		credential rest.TLSClientConfig
		lines      int
	}{
		"in the kubeconfig": {rest.TLSClientConfig{CertData: pair.CertPEM()}, 3},
		"in a file":         {rest.TLSClientConfig{CertFile: file}, 3},
		"a token":           {rest.TLSClientConfig{}, 0},
	} {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		for _, left := range []time.Duration{61 * day, 60 * day, 59 * day, -day} {
			warnOfCredential(tc.credential, "hub.kubeconfig", pair.Cert.NotAfter.Add(-left), logger)
		}
		if got := strings.Count(log.String(), "ends soon"); got != tc.lines {
			t.Errorf("%s: %d lines, want %d: %s", name, got, tc.lines, log.String())
		}
	}
	short, err := pki.Issue(pki.Request{CommonName: "hub", Usage: x509.ExtKeyUsageClientAuth, Lifetime: 40 * day}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for left, want := range map[time.Duration]int{13 * day: 0, 9 * day: 1} {
		var log strings.Builder
		warnOfCredential(rest.TLSClientConfig{CertData: short.CertPEM()}, "hub.kubeconfig", short.Cert.NotAfter.Add(-left),
			slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "ends soon"); got != want {
			t.Errorf("%s before the end of one for 40 days: %d lines", left, got)
		}
	}
	var log strings.Builder
	time.Sleep(355 * day)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Hour)
	defer cancel()
	watchCredential(ctx, rest.TLSClientConfig{CertData: pair.CertPEM()}, "hub.kubeconfig", slog.New(slog.NewTextHandler(&log, nil)))
	if got := strings.Count(log.String(), "ends soon"); got != 2 {
		t.Errorf("in 25 hours, %d lines: %s", got, log.String())
	}
}
