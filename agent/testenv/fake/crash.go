package fake

import (
	"maps"
	"path/filepath"
	"slices"
	"syscall"
)

// StopAt cuts the power at the n-th durable effect from now, counted from 1: before it, or just after it. onStop is called then, with the
// machine's lock held; it may be nil.
func (h *Host) StopAt(n int, after bool, onStop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.stopAfter, h.onStop = h.effects+n, after, onStop
}

// PowerOff cuts the power now.
func (h *Host) PowerOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.stop()
	}
}

// Stopped reports whether the machine is off.
func (h *Host) Stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// Restart starts the machine again, without a new StopAt.
func (h *Host) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped, h.stopAt, h.onStop = false, 0, nil
}

// stop needs the lock.
func (h *Host) stop() {
	h.stopped = true
	for dir, p := range h.running {
		p.cancel(ErrStopped)
		delete(h.running, dir)
	}
	maps.DeleteFunc(h.results, func(_ string, r runResult) bool { return !r.synced })
	h.loseUnsynced()
	if h.onStop != nil {
		h.onStop()
	}
}

// loseUnsynced leaves of the files what has reached the disk. The kernel may write back anything before it is asked to, so what was not
// synced is not simply gone: of every other file the name was written and half of the content, as a file system with delayed allocation
// leaves it; the others are gone, and so are directories with all that is in them.
func (h *Host) loseUnsynced() {
	for i, path := range slices.Sorted(maps.Keys(h.unsynced)) {
		file, exists := h.files[path]
		switch {
		case !exists:
		case file.Dir || file.Link != "" || i%2 == 1:
			h.removeTree(path)
		default:
			file.Content = file.Content[:len(file.Content)/2]
			h.files[path] = file
		}
	}
	clear(h.unsynced)
	for path := range h.files { // a directory may have gone after its entries were looked at
		if parent := filepath.Dir(path); !h.files[parent].Dir {
			h.removeTree(path)
		}
	}
}

// Sync implements fs.FileSystem.
func (h *Host) Sync(path string) error {
	return h.effect("sync", path, func() error {
		resolved, err := h.resolve("open", path, 0, true)
		if err == nil {
			err = h.requireExists("open", resolved)
		}
		if err == nil && !h.files[resolved].Dir {
			err = pathError("open", path, syscall.ENOTDIR)
		}
		maps.DeleteFunc(h.unsynced, func(name string, _ bool) bool { return err == nil && isBelow(name, resolved) })
		return err
	})
}

// Hang makes every change of the disk block until resume is called. Reads succeed, as from the page cache.
func (h *Host) Hang() (resume func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hung := make(chan struct{})
	h.hung = hung
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hung = nil
		close(hung)
	}
}

func (h *Host) waitForDisk() {
	h.mu.Lock()
	hung := h.hung
	h.mu.Unlock()
	if hung != nil {
		<-hung
	}
}
