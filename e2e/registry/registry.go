// Package registry is a container registry for a lab: go-containerregistry's, with blobs and manifests kept in a folder
// so that it can be stopped and started again. It speaks plain HTTP and lets everybody push: it must only ever listen
// inside a lab's network.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// New returns the registry that keeps its contents in dir. Requests are logged to logger.
func New(dir string, logger *log.Logger) (http.Handler, error) {
	blobs := filepath.Join(dir, "blobs")
	manifests := filepath.Join(dir, "manifests")
	for _, d := range []string{blobs, manifests} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("making the registry's folder: %w", err)
		}
	}
	k := &manifestStore{dir: manifests,
		next: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)), registry.Logger(logger))}
	return k, k.restore()
}

// Serve runs the registry on addr until ctx ends.
func Serve(ctx context.Context, dir, addr string, logger *log.Logger) error {
	handler, err := New(dir, logger)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listening for the registry: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: logger}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	}()
	logger.Printf("Registry serves %s on http://%s", dir, ln.Addr())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the registry: %w", err)
	}
	return <-stopped
}
