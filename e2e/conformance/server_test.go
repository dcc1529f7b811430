//go:build conformance

package conformance

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/server/embedded"
)

// startServer starts an API server with all rights.
func startServer() (*rest.Config, func(), error) {
	dir, err := os.MkdirTemp("", "conformance-api-")
	if err != nil {
		return nil, nil, err
	}
	embedded.RouteKubernetesLogs(slog.New(slog.DiscardHandler))
	server, err := embedded.Start(context.Background(), embedded.Options{DataDir: filepath.Join(dir, "data"), UnsafeNoFsync: true})
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return server.RestConfig(), func() {
		server.ExpectStop()
		_ = server.Stop()
		os.RemoveAll(dir)
	}, nil
}
