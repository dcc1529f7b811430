package local

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher hears from the kernel of changes in folders. Where the kernel has no watches left, it says so once, and asks again with each round.
type watcher struct {
	log    *slog.Logger
	open   func() (*fsnotify.Watcher, error)
	notify *fsnotify.Watcher
	// changed is signalled when something has changed.
	changed chan struct{}
	err     error // of this round
	warned  bool
}

func newWatcher(log *slog.Logger) *watcher {
	return &watcher{log: log, open: fsnotify.NewWatcher, changed: make(chan struct{}, 1)}
}

// begin begins a round.
func (w *watcher) begin() {
	w.err = nil
	if w.notify != nil {
		return
	}
	if w.notify, w.err = w.open(); w.err != nil {
		w.notify = nil
		return
	}
	go w.listen(w.notify)
}

// listen listens until notify is closed.
func (w *watcher) listen(notify *fsnotify.Watcher) {
	for {
		select {
		case event, open := <-notify.Events:
			if !open {
				return
			}
			if strings.HasPrefix(filepath.Base(event.Name), ".") {
				continue // a name that nobody looks at
			}
		case _, open := <-notify.Errors: // the kernel had more to tell than it could keep, for one
			if !open {
				return
			}
		}
		signal(w.changed)
	}
}

// add watches a folder; one that is watched already stays so.
func (w *watcher) add(dir string) {
	if w.notify == nil {
		return
	}
	if err := w.notify.Add(dir); err != nil && w.err == nil {
		w.err = err
	}
}

// complete tells whether all folders of the round are watched.
func (w *watcher) complete() bool {
	if w.err != nil && !w.warned {
		w.log.Warn("The kernel does not tell of changes in the folder of local plans, which is read now and then instead; "+
			"raise fs.inotify.max_user_watches and fs.inotify.max_user_instances", "error", w.err, "every", slowly)
	}
	w.warned = w.err != nil
	return w.err == nil
}

// settle waits until no more changes come, and tells whether the folder is to be read.
func (w *watcher) settle(ctx context.Context) bool {
	quiet, enough := time.NewTimer(calm), time.NewTimer(restless)
	defer quiet.Stop()
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-w.changed:
			quiet.Reset(calm)
		case <-quiet.C:
			return true
		case <-enough.C:
			return true
		}
	}
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
