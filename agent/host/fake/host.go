// Package fake is a machine in memory for tests of the agent. It runs no program and touches no disk. At every durable effect a test
// may let it fail or stop the world, as a power cut would, and start it again with what had reached the disk: what was written and not
// synced is lost then, wholly or by half. Package hosttest holds it to what host.Machine does.
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
)

// ErrStopped is what everything returns once the world has stopped.
var ErrStopped = errors.New("the machine has stopped")

// Program stands for a program. It may use the Host it runs on.
type Program func(ctx context.Context, command host.Command) (host.Result, error)

// File is what the machine holds under a path.
type File struct {
	Content []byte
	Dir     bool
	Attrs   host.Attributes
	// Link is the target of a symbolic link.
	Link string
}

// Host is a host.Host. Its zero value is not usable; see New.
type Host struct {
	mu sync.Mutex
	// files is what a reader sees; of those in unsynced, content or name is in memory alone.
	files    map[string]File
	modified map[string]time.Time
	unsynced map[string]bool
	programs map[string]Program
	runs     []host.Command
	locks    map[string]bool
	running  map[string]*running
	ended    map[string]outcome
	notified []string

	effects int
	stopAt  int
	after   bool
	stopped bool
	onStop  func()
	onRun   func(host.Command)
	fail    func(operation, path string) error
	// hung is not nil while the disk hangs, and closed when it goes on.
	hung chan struct{}
}

var _ host.Host = (*Host)(nil)

// New makes a machine with an empty disk.
func New() *Host {
	return &Host{files: map[string]File{"/": {Dir: true, Attrs: host.Attributes{Mode: 0o755}}}, modified: map[string]time.Time{}, unsynced: map[string]bool{},
		programs: map[string]Program{}, locks: map[string]bool{}, running: map[string]*running{}, ended: map[string]outcome{}}
}

// Program sets what runs for a command, by the base name of its path.
func (h *Host) Program(name string, program Program) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.programs[name] = program
}

// FailWith asks fail before every effect; its error is the effect's. A nil function fails nothing.
func (h *Host) FailWith(fail func(operation, path string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = fail
}

// Files is a copy of what the machine holds without its folders.
func (h *Host) Files() map[string]File {
	h.mu.Lock()
	defer h.mu.Unlock()
	files := maps.Clone(h.files)
	maps.DeleteFunc(files, func(_ string, f File) bool { return f.Dir })
	return files
}

// Runs are the commands that ran to their end.
func (h *Host) Runs() []host.Command {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.runs)
}

// Notified is what the service manager was told.
func (h *Host) Notified() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.notified)
}

// effect does something durable, unless the test wants otherwise.
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
	if h.after {
		_ = do()
	}
	h.stop()
	return ErrStopped
}

// Lock implements host.Host. A lock ends with the world.
func (h *Host) Lock(path string) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	path = filepath.Clean(path)
	if h.locks[path] {
		return nil, fmt.Errorf("%s is held by another process (pid 1): %w", path, host.ErrLocked)
	}
	at, err := h.resolve("open", path, 0, false)
	if err != nil {
		return nil, err
	}
	if _, there := h.files[at]; !there {
		h.files[at] = File{Content: []byte("1\n"), Attrs: host.Attributes{Mode: 0o600}}
	}
	h.locks[path] = true
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.locks, path)
	}), nil
}

// Notify implements host.Host.
func (h *Host) Notify(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notified = append(h.notified, state)
}
