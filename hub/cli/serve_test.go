package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
)

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
