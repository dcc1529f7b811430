package cli

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/agent/config"
	"github.com/drover-dev/drover/agent/host"
)

// layersName is the directory of the image cache in imageCacheDirectory.
const layersName = "layers"

// removeOldCache removes the image cache in the state directory where imageCacheDirectory has been set to another one: nobody else would,
// and it may have 8 GiB. A link, or a link in the path, may make the two the same; and the one that is used may be below the other.
func removeOldCache(cfg config.Config, machine host.Host, log *slog.Logger) {
	path, used := filepath.Join(cfg.StateDirectory, layersName), filepath.Join(cfg.ImageCacheDirectory, layersName)
	if path == used {
		return
	}
	old, err := os.Stat(path)
	if err != nil {
		return
	}
	for dir := used; ; dir = filepath.Dir(dir) {
		if current, err := os.Stat(dir); err == nil && os.SameFile(old, current) {
			return
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if err := machine.RemoveAll(path); err != nil {
		log.Warn("Removing the image cache that is no longer used failed", "directory", path, "error", err)
		return
	}
	log.Info("Removed the image cache that is no longer used", "directory", path)
}
