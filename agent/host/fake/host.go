// Package fake is a machine in memory for tests of the agent. It runs no program and touches no disk. At every durable effect a test
// may let it fail or stop the world, as a power cut would, and start it again with what had reached the disk.
package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/drover-dev/drover/agent/host"
)

// ErrStopped is what everything returns once the world has stopped.
var ErrStopped = errors.New("the machine has stopped")

// Program stands for a program. It may use the Host it runs on.
type Program func(ctx context.Context, command host.Command) (host.Result, error)

// File is what the disk holds under a path.
type File struct {
	Content []byte
	Dir     bool
	Attrs   host.Attributes
	// Link is the target of a symbolic link.
	Link string
}

// Host is a host.Host. Its zero value is not usable; see New.
type Host struct {
	mu       sync.Mutex
	files    map[string]File
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
}

var _ host.Host = (*Host)(nil)

// New makes a machine with an empty disk.
func New() *Host {
	return &Host{files: map[string]File{"/": {Dir: true}}, programs: map[string]Program{}, locks: map[string]bool{},
		running: map[string]*running{}, ended: map[string]outcome{}}
}

// Program sets what runs for a command, by the base name of its path.
func (h *Host) Program(name string, program Program) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.programs[name] = program
}

// StopAt stops the world at the n-th durable effect from now, counted from 1: before it, or just after it has reached the disk. onStop
// is called then.
func (h *Host) StopAt(n int, after bool, onStop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopAt, h.after, h.onStop = h.effects+n, after, onStop
}

// Restart starts a stopped world again.
func (h *Host) Restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped, h.stopAt, h.onStop = false, 0, nil
}

// FailWith asks fail before every effect; its error is the effect's. A nil function fails nothing.
func (h *Host) FailWith(fail func(operation, path string) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = fail
}

// Stopped tells whether the world has stopped.
func (h *Host) Stopped() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped
}

// Files is a copy of the disk without its folders.
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

func (h *Host) look(path string) (File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return File{}, ErrStopped
	}
	file, found := h.files[filepath.Clean(path)]
	if !found {
		return File{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return file, nil
}

// ReadFile implements host.Host.
func (h *Host) ReadFile(path string) ([]byte, error) {
	file, err := h.look(path)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(file.Content), nil
}

// OpenFile implements host.Host.
func (h *Host) OpenFile(path string) (io.ReadCloser, error) {
	raw, err := h.ReadFile(path)
	return io.NopCloser(bytes.NewReader(raw)), err
}

// ReadDir implements host.Host.
func (h *Host) ReadDir(path string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	var names []string
	for name := range h.files {
		if filepath.Dir(name) == filepath.Clean(path) && name != "/" {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// WriteFile implements host.Host. Like the machine it leaves a file alone that is so already.
func (h *Host) WriteFile(path string, content []byte, attrs host.Attributes) error {
	if old, err := h.look(path); err == nil && !old.Dir && bytes.Equal(old.Content, content) && old.Attrs == attrs {
		return nil
	}
	return h.effect("write", path, func() error {
		return h.put(path, File{Content: bytes.Clone(content), Attrs: attrs})
	})
}

// WriteStream implements host.Host.
func (h *Host) WriteStream(path string, content io.Reader) error {
	raw, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return h.WriteFile(path, raw, host.Private(0o600))
}

// AppendFile implements host.Host.
func (h *Host) AppendFile(path string, content []byte) error {
	return h.effect("append", path, func() error {
		old := h.files[filepath.Clean(path)]
		return h.put(path, File{Content: append(bytes.Clone(old.Content), content...), Attrs: host.Private(0o600)})
	})
}

// put needs the lock.
func (h *Host) put(path string, file File) error {
	path = filepath.Clean(path)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not absolute", path)
	}
	if h.files[path].Dir && !file.Dir {
		return fmt.Errorf("%s is a folder", path)
	}
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		if existing, found := h.files[parent]; found {
			if !existing.Dir {
				return fmt.Errorf("%s is not a folder", parent)
			}
			break
		}
		h.files[parent] = File{Dir: true, Attrs: host.Private(0o755)}
	}
	h.files[path] = file
	return nil
}

// MakeDir implements host.Host.
func (h *Host) MakeDir(path string, attrs host.Attributes) error {
	return h.effect("mkdir", path, func() error { return h.put(path, File{Dir: true, Attrs: attrs}) })
}

// Remove implements host.Host.
func (h *Host) Remove(path string) error {
	return h.effect("remove", path, func() error {
		delete(h.files, filepath.Clean(path))
		return nil
	})
}

// RemoveAll implements host.Host.
func (h *Host) RemoveAll(path string) error {
	return h.effect("remove", path, func() error {
		path := filepath.Clean(path)
		maps.DeleteFunc(h.files, func(name string, _ File) bool { return name == path || strings.HasPrefix(name, path+"/") })
		maps.DeleteFunc(h.ended, func(name string, _ outcome) bool { return name == path || strings.HasPrefix(name, path+"/") })
		return nil
	})
}

// Lstat implements host.Host.
func (h *Host) Lstat(path string) (host.Info, error) {
	file, err := h.look(path)
	return host.Info{Attributes: file.Attrs, Size: int64(len(file.Content)), Dir: file.Dir, Link: file.Link}, err
}

// Symlink implements host.Host.
func (h *Host) Symlink(target, path string) error {
	return h.effect("symlink", path, func() error {
		return h.put(path, File{Link: target, Attrs: host.Private(0o777)})
	})
}

// Lock implements host.Host. A lock ends with the world.
func (h *Host) Lock(path string) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	if h.locks[path] {
		return nil, fmt.Errorf("%s is held by another process (pid 1): %w", path, host.ErrLocked)
	}
	h.locks[path] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.locks, path)
	}, nil
}

// Rename implements host.Host.
func (h *Host) Rename(from, to string) error {
	return h.effect("rename", from, func() error {
		from, to := filepath.Clean(from), filepath.Clean(to)
		moved := map[string]File{}
		for name, file := range h.files {
			if rest, below := strings.CutPrefix(name, from); below && (rest == "" || rest[0] == '/') {
				moved[to+rest] = file
				delete(h.files, name)
			}
		}
		if len(moved) == 0 {
			return fmt.Errorf("%s: %w", from, fs.ErrNotExist)
		}
		maps.Copy(h.files, moved)
		return nil
	})
}

// Unpack implements host.Host. It stores the stream under ".layer".
func (h *Host) Unpack(_ context.Context, dir string, layer io.Reader) error {
	raw, err := io.ReadAll(layer)
	if err != nil {
		return err
	}
	return h.effect("unpack", dir, func() error { return h.put(filepath.Join(dir, ".layer"), File{Content: raw}) })
}

// Notify implements host.Host.
func (h *Host) Notify(state string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notified = append(h.notified, state)
}
