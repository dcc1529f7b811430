package certificates

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// Rotate removes certificates and keys of services, and returns the folder that they were copied to before. A node that is running goes
// on with those in memory; the next start makes new ones.
func Rotate(data layout.Data, services []string, now time.Time) (string, error) {
	files, err := stems(data, services)
	if err != nil {
		return "", err
	}
	backup := fmt.Sprintf("tls-%d", now.Unix())
	if isServer(data) {
		backup = data.Server(backup)
		if err := os.CopyFS(backup, os.DirFS(data.TLS())); err != nil {
			return "", fmt.Errorf("copying certificates: %w", err)
		}
	} else {
		backup = data.Agent(backup)
	}
	for _, stem := range files {
		for _, ending := range []string{".crt", ".key"} {
			if err := copyOf(data, stem+ending, backup); err != nil {
				return "", err
			}
		}
	}
	for _, stem := range files {
		for _, ending := range []string{".crt", ".key"} {
			if err := os.Remove(stem + ending); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
	}
	return backup, nil
}

// copyOf copies a file of the agent's to the backup. Those of the server are there already.
func copyOf(data layout.Data, file, backup string) error {
	if filepath.Dir(file) != data.Agent() {
		return nil
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(backup, filepath.Base(file)), raw, 0o600)
}
