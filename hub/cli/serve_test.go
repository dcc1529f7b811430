package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/api/provider"
	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestMissingAgents: a hub whose program was copied without the agents says so when it starts.
func TestMissingAgents(t *testing.T) {
	opts, log := &serveOptions{}, &bytes.Buffer{}
	opts.hub.AssetsDir, opts.hub.Providers = t.TempDir(), provider.All()
	logger := slog.New(slog.NewTextHandler(log, nil))
	warnOfMissingAgents(opts, logger)
	if !strings.Contains(log.String(), "--assets-dir") || !strings.Contains(log.String(), "system-agent-amd64") {
		t.Errorf("without agents: got %q", log)
	}
	log.Reset()
	for _, arch := range []string{"amd64", "arm64"} {
		if err := os.WriteFile(filepath.Join(opts.hub.AssetsDir, "system-agent-"+arch), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	warnOfMissingAgents(opts, logger)
	if log.Len() > 0 {
		t.Errorf("with agents: got %q", log)
	}
}

// TestAwaitCorrection: the API of a hub that does not start stays up only where something in it has to be corrected.
func TestAwaitCorrection(t *testing.T) {
	stored := fmt.Errorf("preparing: %w", pki.StoredError{Err: errors.New("no PEM block")})
	for name, tt := range map[string]struct {
		err      error
		canceled bool
		want     time.Duration
	}{
		"a Secret":              {err: stored, want: correctionTime},
		"a Secret, interrupted": {err: stored, canceled: true},
		"something else":        {err: errors.New("the port is in use")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.canceled {
					cancel()
				}
				begin := time.Now()
				awaitCorrection(ctx, tt.err, slog.New(slog.DiscardHandler))
				if took := time.Since(begin); took != tt.want {
					t.Errorf("waited %s, want %s", took, tt.want)
				}
			})
		})
	}
}
