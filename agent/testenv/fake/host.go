// Package fake is a machine in memory for tests of the agent. It runs no program and touches no disk. A test may make every durable
// effect fail, or cut the power at it, and start the machine again with what had reached the disk: what was written and not synced is
// lost then, in whole or in part. Package hosttest checks that it does what host.Local does.
package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

// ErrStopped is returned by everything while the machine is off.
var ErrStopped = errors.New("the machine is off")

// Program implements a program. It may use the Host that it runs on.
type Program func(ctx context.Context, command run.Command) (run.Result, error)

// File is what the machine holds at a path.
type File struct {
	// Content is nil for directories and links.
	Content []byte
	// Dir is set for a directory.
	Dir bool
	// Attrs are always explicit: no id is -1.
	Attrs fs.Attributes
	// Link is the target of a symbolic link, otherwise empty.
	Link string
}

// Host is a host.Host. Its zero value is not usable; see New.
type Host struct {
	mu sync.Mutex
	// files is what a reader sees. Of those in unsynced, content or name is in memory only.
	files    map[string]File
	modified map[string]time.Time
	unsynced map[string]bool
	programs map[string]Program
	// runs are the commands that ran to their end.
	runs  []run.Command
	locks map[string]bool
	// running and results are of programs with a run directory, by that.
	running map[string]*process
	results map[string]runResult

	// effects counts durable effects. The power is cut at number stopAt: before it, or with stopAfter just after it.
	effects   int
	stopAt    int
	stopAfter bool
	stopped   bool
	onStop    func()
	onRun     func(run.Command)
	fail      func(operation, path string) error
	// hung is closed when the disk no longer hangs; nil if it does not.
	hung chan struct{}
}

var _ host.Host = (*Host)(nil)

// New makes a running machine with an empty disk.
func New() *Host {
	return &Host{
		files:    map[string]File{"/": {Dir: true, Attrs: fs.Attributes{Mode: 0o755}}},
		modified: map[string]time.Time{}, unsynced: map[string]bool{}, programs: map[string]Program{}, locks: map[string]bool{},
		running: map[string]*process{}, results: map[string]runResult{},
	}
}

// Program sets what runs for commands whose path has this base name.
func (h *Host) Program(name string, program Program) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.programs[name] = program
}

// FailWith calls fail before every effect on files, with the operation (write, append, mkdir, remove, rename, symlink, sync or unpack);
// its error is returned instead of the effect. nil stops that.
func (h *Host) FailWith(fail func(operation, path string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = fail
}

// Files copies the files and links of the machine, without directories.
func (h *Host) Files() map[string]File {
	h.mu.Lock()
	defer h.mu.Unlock()
	files := maps.Clone(h.files)
	maps.DeleteFunc(files, func(_ string, f File) bool { return f.Dir })
	return files
}

// Runs are the commands that ran to their end, in that order.
func (h *Host) Runs() []run.Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.runs)
}

// effect performs a durable effect, unless the test wants it to fail or the power to be cut.
func (h *Host) effect(operation, path string, do func() error) error {
	h.waitForDisk()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return ErrStopped
	}
	if h.fail != nil {
		if err := h.fail(operation, path); err != nil {
			return err
		}
	}
	h.effects++
	if h.effects != h.stopAt {
		return do()
	}
	if h.stopAfter {
		_ = do()
	}
	h.stop()
	return ErrStopped
}

// Lock implements fs.FileSystem. A power cut releases all locks.
func (h *Host) Lock(path string) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	path = filepath.Clean(path)
	if h.locks[path] {
		return nil, fmt.Errorf("%s is locked by another process (pid 1): %w", path, fs.ErrLocked)
	}
	resolved, err := h.resolve("open", path, 0, false)
	if err != nil {
		return nil, err
	}
	if _, exists := h.files[resolved]; !exists {
		h.files[resolved] = File{Content: []byte("1\n"), Attrs: fs.Attributes{Mode: 0o600}}
	}
	h.locks[path] = true
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.locks, path)
	}), nil
}
