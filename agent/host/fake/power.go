package fake

import (
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"syscall"
)

// StopAt stops the world at the n-th durable effect from now, counted from 1: before it, or just after it. onStop is called then.
func (h *Host) StopAt(n int, after bool, onStop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.after, h.onStop = h.effects+n, after, onStop
}

// Off stops the world now, as a power cut does.
func (h *Host) Off() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.stop()
	}
}

// Stopped tells whether the world has stopped.
func (h *Host) Stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// Restart starts a stopped world again.
func (h *Host) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped, h.stopAt, h.onStop = false, 0, nil
}

// stop needs the lock.
func (h *Host) stop() {
	h.stopped = true
	for spool, run := range h.running {
		run.cancel(ErrStopped)
		delete(h.running, spool)
	}
	maps.DeleteFunc(h.ended, func(_ string, o outcome) bool { return !o.synced })
	h.loseUnsynced()
	if h.onStop != nil {
		h.onStop()
	}
}

// loseUnsynced leaves of the files what has reached the disk. A kernel writes back what it likes before it is asked to, so what was not
// synced is not simply gone: of every other file the name was written and half of the content, which is what a file system leaves that
// allocates late; the others are gone, and so are folders with all that is in them.
func (h *Host) loseUnsynced() {
	for i, path := range slices.Sorted(maps.Keys(h.unsynced)) {
		file, there := h.files[path]
		switch {
		case !there:
		case file.Dir || file.Link != "" || i%2 == 1:
			h.removeTree(path)
		default:
			file.Content = file.Content[:len(file.Content)/2]
			h.files[path] = file
		}
	}
	clear(h.unsynced)
	for path := range h.files { // a folder may have gone after what is in it was looked at
		if parent := filepath.Dir(path); !h.files[parent].Dir {
			h.removeTree(path)
		}
	}
}

// Sync implements host.Host.
func (h *Host) Sync(path string) error {
	return h.effect("sync", path, func() error {
		at, err := h.resolve("open", path, 0, true)
		if err == nil {
			err = h.missing("open", at)
		}
		if err == nil && !h.files[at].Dir {
			err = &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
		}
		maps.DeleteFunc(h.unsynced, func(name string, _ bool) bool { return err == nil && isBelow(name, at) })
		return err
	})
}

// Hang lets the disk hang: whatever changes it does not return until the function that this gives is called. Reading goes on, as it does
// from the page cache.
func (h *Host) Hang() (goOn func()) {
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
