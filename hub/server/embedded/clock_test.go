package embedded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestAwaitClock: a start waits for a clock that is behind, for some time, and for no other.
func TestAwaitClock(t *testing.T) {
	const day = 24 * time.Hour // by which an authority begins before it is issued
	for name, tt := range map[string]struct {
		issued, waited time.Duration
		lines          int
	}{
		"a right clock":        {issued: -time.Hour},
		"an old directory":     {issued: -4000 * day},
		"one that is set soon": {issued: day + 30*time.Second, waited: 30 * time.Second, lines: 6},
		"one that is not set":  {issued: 1000 * day, waited: clockWait, lines: 25},
		"one behind by hours":  {issued: 14 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, begin := t.TempDir(), time.Now()
				if _, err := ensureCertificates(dir, filepath.Join(dir, "etcd"), begin.Add(tt.issued)); err != nil {
					t.Fatal(err)
				}
				var log strings.Builder
				if err := awaitClock(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil))); err != nil || time.Since(begin) != tt.waited {
					t.Errorf("waited %s, want %s: %v", time.Since(begin), tt.waited, err)
				}
				if lines := strings.Count(log.String(), "\n"); lines != tt.lines {
					t.Errorf("%d lines in the log, want %d: %s", lines, tt.lines, log.String())
				}
			})
		})
	}
	if err := awaitClock(t.Context(), filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("at the first start: %v", err)
	}
}

// TestRenewsSoon: certificates that have expired while a virtual machine was suspended are renewed within minutes.
func TestRenewsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certs, err := ensureCertificates(filepath.Join(dir, "tls"), filepath.Join(dir, "etcd"), time.Now().Add(-400*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		path, config := filepath.Join(dir, AdminKubeconfig), certs.adminConfig("127.0.0.1:6443")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go certs.keepFresh(ctx, slog.New(slog.DiscardHandler), path, config)
		time.Sleep(2 * checkInterval)
		synctest.Wait()
		for _, name := range []string{"server.crt", "admin.crt"} {
			raw, err := os.ReadFile(filepath.Join(dir, "tls", name))
			if err != nil {
				t.Fatal(err)
			}
			if cert, err := pki.ParseCert(raw); err != nil || cert.NotAfter.Before(time.Now()) {
				t.Errorf("%s: %+v, %v", name, cert, err)
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the administrator's kubeconfig: %v", err)
		}
	})
}
