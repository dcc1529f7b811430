package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/hub/identity/pki"
)

const (
	// clockWait is how long a start waits for the clock to be set, and clockPoll how often it looks at it.
	clockWait, clockPoll = 2 * time.Minute, time.Second
	// clockLogInterval is how often it logs that it waits.
	clockLogInterval = 5 * time.Second
)

// awaitClock waits while the clock is before the beginning of the certificate authorities in a directory, as on a machine whose clock does
// not run while it is off, until the time is synchronized. The authorities would be replaced, and the new ones end before they are of use.
// After clockWait the clock counts as right: it was ahead when they were created.
func awaitClock(ctx context.Context, dir string, log *slog.Logger) error {
	begin := authoritiesBegin(dir)
	start, logged := time.Now(), time.Time{}
	for time.Now().Before(begin) {
		waited := time.Since(start)
		if waited >= clockWait {
			log.Warn("The clock is still before the beginning of the hub's certificate authorities; replacing them", "clock", clockText(time.Now()),
				"begin", clockText(begin))
			return nil
		}
		if logged.IsZero() || time.Since(logged) >= clockLogInterval {
			log.Warn("Waiting for the clock of this machine to be set: it is before the beginning of the hub's certificate authorities",
				"clock", clockText(time.Now()), "begin", clockText(begin), "continuesIn", (clockWait - waited).Round(time.Second).String())
			logged = time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the clock to be set: %w", context.Cause(ctx))
		case <-time.After(clockPoll):
		}
	}
	return nil
}

func clockText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// authoritiesBegin is when the last of the authorities in a directory begins; zero where there are none.
func authoritiesBegin(dir string) (begin time.Time) {
	for _, name := range []string{"server-ca.crt", "client-ca.crt"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // whoever needs the file says why
		}
		if cert, err := pki.ParseCert(raw); err == nil && cert.NotBefore.After(begin) {
			begin = cert.NotBefore
		}
	}
	return begin
}
