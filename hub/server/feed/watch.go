package feed

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch reads the file again whenever something in its folder changes: files are replaced by renaming others, and those of a ConfigMap by
// turning a link around. The file is also read once when the watch begins: it may have changed since Load.
func (f *Feed) watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching release data: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(f.Location)); err != nil {
		return fmt.Errorf("watching the folder of the release data: %w", err)
	}
	f.reload()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			f.Logger.Warn("Watching release data", "error", err)
		case event := <-watcher.Events:
			if filepath.Base(event.Name) != filepath.Base(f.Location) && filepath.Base(event.Name) != "..data" {
				continue
			}
			f.reload()
		}
	}
}

// reload takes the data from the file, and logs why where it cannot be used.
func (f *Feed) reload() {
	if err := f.read(); err != nil {
		f.Logger.Warn("The release data cannot be used; what there was stays in use", "error", err)
	}
}
