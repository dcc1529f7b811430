package feed

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollInterval is how often the file is read where its folder cannot be watched, as on a machine without free inotify instances.
const pollInterval = time.Minute

// watch reads the file again whenever something in its folder changes: files are replaced by renaming others, and those of a ConfigMap by
// turning a link around. The file is also read once when the watch begins: it may have changed since Load.
func (f *Feed) watch(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var errs <-chan error
	var poll <-chan time.Time
	if watcher, err := watchFolder(filepath.Dir(f.Location)); err == nil {
		defer watcher.Close()
		events, errs = watcher.Events, watcher.Errors
	} else {
		f.Logger.Warn("Watching release data failed, reading it every minute instead; raise fs.inotify.max_user_instances and "+
			"fs.inotify.max_user_watches", "error", err)
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		poll = ticker.C
	}
	f.reload()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll:
			f.reload()
		case err := <-errs: // events were lost
			f.Logger.Warn("Watching release data", "error", err)
			f.reload()
		case event := <-events:
			if filepath.Base(event.Name) != filepath.Base(f.Location) && filepath.Base(event.Name) != "..data" {
				continue
			}
			f.reload()
		}
	}
}

func watchFolder(folder string) (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(folder); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watching %s: %w", folder, err)
	}
	return watcher, nil
}

// reload takes the data from the file, and logs why where it cannot be used.
func (f *Feed) reload() {
	if err := f.read(); err != nil {
		f.Logger.Warn("The release data cannot be used; what there was stays in use", "error", err)
	}
}
