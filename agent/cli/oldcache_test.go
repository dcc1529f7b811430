package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
)

// TestOldCache: a machine whose image cache is moved does not keep the earlier one for ever. The journal, and the cache that is used, stay.
func TestOldCache(t *testing.T) {
	for name, tc := range map[string]struct {
		cache string
		kept  bool
	}{
		"as before":    {cache: "state", kept: true},
		"through link": {cache: "link", kept: true},
		"below":        {cache: "state/layers", kept: true},
		"below a link": {cache: "link/layers/images", kept: true},
		"elsewhere":    {cache: "cache"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			layer, journal := filepath.Join(dir, "state/layers/sha256-1"), filepath.Join(dir, "state/journal")
			if err := os.MkdirAll(filepath.Dir(layer), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{layer, journal} {
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("state", filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
			cfg := config.Config{StateDirectory: filepath.Join(dir, "state"), ImageCacheDirectory: filepath.Join(dir, tc.cache)}
			removeOldCache(cfg, host.Local{}, slog.New(slog.DiscardHandler))
			if _, err := os.Stat(layer); (err == nil) != tc.kept {
				t.Errorf("the layer is kept: %t (%v), want %t", err == nil, err, tc.kept)
			}
			if _, err := os.Stat(filepath.Dir(layer)); (err == nil) != tc.kept {
				t.Errorf("the directory is kept: %t (%v), want %t", err == nil, err, tc.kept)
			}
			if _, err := os.Stat(journal); err != nil {
				t.Error(err)
			}
		})
	}
}
