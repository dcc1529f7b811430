package cli

import (
	"context"
	"log/slog"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/identity/pki"
)

const (
	// credentialWarning is how long before its end a client certificate of --kubeconfig is logged, every credentialInterval. One for less
	// than a year may be replaced in its file in time, and is logged in the last quarter of its time.
	credentialWarning  = 60 * 24 * time.Hour
	credentialInterval = 24 * time.Hour
)

// watchCredential logs that the client certificate of --kubeconfig ends soon, until ctx ends. Nobody renews it: those of k3s and RKE2 are
// for a year.
func watchCredential(ctx context.Context, credential rest.TLSClientConfig, file string, logger *slog.Logger) {
	wait.UntilWithContext(ctx, func(context.Context) { warnOfCredential(credential, file, time.Now(), logger) }, credentialInterval)
}

func warnOfCredential(credential rest.TLSClientConfig, file string, now time.Time, logger *slog.Logger) {
	raw := credential.CertData
	if len(raw) == 0 && credential.CertFile != "" {
		raw, _ = os.ReadFile(credential.CertFile) // whoever uses it says why it cannot be read
	}
	cert, err := pki.ParseCert(raw)
	if err != nil || cert.NotAfter.Sub(now) > min(credentialWarning, cert.NotAfter.Sub(cert.NotBefore)/4) {
		return
	}
	logger.Warn("The client certificate in --kubeconfig ends soon, and without it the hub does not reach its API: replace it, and restart "+
		"the hub", "kubeconfig", file, "ends", cert.NotAfter.UTC().Format(time.RFC3339))
}
