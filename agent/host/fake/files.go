package fake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

func (h *Host) look(op, path string, follow bool) (string, File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return "", File{}, ErrStopped
	}
	w := walker{host: h, op: op, follow: follow, anybody: true}
	at, err := w.find(path)
	if err == nil {
		err = h.missing(op, at)
	}
	return at, h.files[at], err
}

// missing needs the lock.
func (h *Host) missing(op, path string) error {
	if _, there := h.files[path]; !there {
		return &fs.PathError{Op: op, Path: path, Err: syscall.ENOENT}
	}
	return nil
}

// ReadFile implements host.Host.
func (h *Host) ReadFile(path string) ([]byte, error) {
	_, file, err := h.look("open", path, true)
	switch {
	case err != nil:
		return nil, err
	case file.Dir:
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if len(file.Content) > host.MaxReadBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, host.MaxReadBytes)
	}
	return bytes.Clone(file.Content), nil
}

// OpenFile implements host.Host.
func (h *Host) OpenFile(path string) (io.ReadCloser, error) {
	_, file, err := h.look("open", path, true)
	switch {
	case err != nil:
		return nil, err
	case file.Dir:
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return io.NopCloser(bytes.NewReader(bytes.Clone(file.Content))), nil
}

// ReadDir implements host.Host.
func (h *Host) ReadDir(path string) ([]string, error) {
	at, file, err := h.look("open", path, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !file.Dir:
		return nil, &fs.PathError{Op: "readdirent", Path: path, Err: syscall.ENOTDIR}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.files {
		if filepath.Dir(name) == at && name != "/" {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Lstat implements host.Host.
func (h *Host) Lstat(path string) (host.Info, error) {
	// A name that ends in a dot is that of the folder which a link leads to.
	at, file, err := h.look("lstat", path, strings.HasSuffix(path, "/."))
	if err != nil {
		return host.Info{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	info := host.Info{Attributes: file.Attrs, Size: int64(len(file.Content)), Modified: h.modified[at], Dir: file.Dir, Link: file.Link}
	if file.Link != "" {
		info.Size = int64(len(file.Link))
	}
	return info, nil
}

// heir needs the lock. It is what a path is before it is written: what is there, or a file that has the group of a folder with setgid.
func (h *Host) heir(path string) File {
	old, there := h.files[path]
	if above := h.files[filepath.Dir(path)].Attrs; !there && above.Mode&0o2000 != 0 {
		old.Attrs.GID = above.GID
	}
	return old
}

// owned fills in an owner that is to stay.
func owned(attrs host.Attributes, old File) host.Attributes {
	if attrs.UID == -1 {
		attrs.UID = old.Attrs.UID
	}
	if attrs.GID == -1 {
		attrs.GID = old.Attrs.GID
	}
	return attrs
}

// WriteFile implements host.Host. Like the machine it leaves a file alone that is so already.
func (h *Host) WriteFile(path string, content []byte, attrs host.Attributes) error {
	if _, old, err := h.look("open", path, false); err == nil && !old.Dir && old.Link == "" && bytes.Equal(old.Content, content) && old.Attrs == owned(attrs, old) {
		return nil
	}
	return h.replace(path, content, attrs)
}

// WriteStream implements host.Host.
func (h *Host) WriteStream(path string, content io.Reader, attrs host.Attributes) error {
	raw, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return h.replace(path, raw, attrs)
}

func (h *Host) replace(path string, content []byte, attrs host.Attributes) error {
	return h.effect("write", path, func() error {
		at, err := h.resolve("write", path, parentMode, false)
		if err != nil {
			return err
		}
		old := h.heir(at)
		switch {
		case old.Dir:
			return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
		case old.Link != "":
			old = File{}
		}
		h.put(at, File{Content: bytes.Clone(content), Attrs: owned(attrs, old)})
		return nil
	})
}

// AppendFile implements host.Host.
func (h *Host) AppendFile(path string, content []byte) error {
	return h.effect("append", path, func() error { return h.add(path, content) })
}

// AppendStream implements host.Host. What came before content failed is on the disk as one effect.
func (h *Host) AppendStream(path string, content io.Reader) (int64, error) {
	raw, failed := io.ReadAll(content)
	if err := h.effect("append", path, func() error { return h.add(path, raw) }); err != nil {
		return 0, err
	}
	return int64(len(raw)), failed
}

// add needs the lock.
func (h *Host) add(path string, content []byte) error {
	at, err := h.resolve("open", path, parentMode, false)
	if err != nil {
		return err
	}
	_, there := h.files[at]
	old := h.heir(at)
	switch {
	case !there:
		old.Attrs.Mode = 0o600
	case old.Dir:
		return &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case old.Link != "":
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
	}
	old.Content = append(bytes.Clone(old.Content), content...)
	h.put(at, old)
	return nil
}

// MakeDir implements host.Host.
func (h *Host) MakeDir(path string, attrs host.Attributes) error {
	return h.effect("mkdir", path, func() error {
		at, err := h.resolve("mkdir", path, parentMode, true)
		if err != nil {
			return err
		}
		old := h.heir(at)
		if _, there := h.files[at]; there && !old.Dir {
			return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
		}
		h.put(at, File{Dir: true, Attrs: owned(attrs, old)})
		return nil
	})
}

// Remove implements host.Host.
func (h *Host) Remove(path string) error {
	return h.effect("remove", path, func() error {
		at, err := h.resolve("remove", path, 0, false)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		if err == nil && h.hasEntries(at) {
			err = &fs.PathError{Op: "remove", Path: path, Err: syscall.ENOTEMPTY}
		}
		if err == nil {
			h.removeTree(at)
		}
		return err
	})
}

// RemoveAll implements host.Host.
func (h *Host) RemoveAll(path string) error {
	if clean := filepath.Clean(path); !filepath.IsAbs(clean) || clean == "/" {
		return fmt.Errorf("refusing to remove %q", path)
	}
	return h.effect("remove", path, func() error {
		at, err := h.resolve("remove", path, 0, false)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		if err == nil {
			h.removeTree(at)
		}
		return err
	})
}

// Rename implements host.Host.
func (h *Host) Rename(from, to string) error {
	return h.effect("rename", from, func() error {
		source, err := h.resolve("rename", from, 0, false)
		if err != nil {
			return err
		}
		target, err := h.resolve("rename", to, 0, false)
		if err == nil {
			err = h.mayReplace(source, target)
		}
		if err != nil {
			return err
		}
		h.removeTree(target)
		for _, name := range slices.Sorted(maps.Keys(h.files)) {
			if !isBelow(name, source) {
				continue
			}
			moved := target + strings.TrimPrefix(name, source)
			h.files[moved], h.modified[moved] = h.files[name], h.modified[name]
			delete(h.files, name)
			if name != source && h.unsynced[name] {
				h.unsynced[moved] = true
			}
			delete(h.unsynced, name)
		}
		return nil
	})
}

// mayReplace needs the lock. It says what rename(2) would.
func (h *Host) mayReplace(source, target string) error {
	old, there := h.files[target]
	moved, found := h.files[source]
	var failed syscall.Errno
	switch {
	case !found:
		failed = syscall.ENOENT
	case moved.Dir && target != source && isBelow(target, source):
		failed = syscall.EINVAL
	case there && old.Dir && !moved.Dir:
		failed = syscall.EISDIR
	case there && !old.Dir && moved.Dir:
		failed = syscall.ENOTDIR
	case there && h.hasEntries(target):
		failed = syscall.ENOTEMPTY
	default:
		return nil
	}
	return &fs.PathError{Op: "rename", Path: source, Err: failed}
}

// Symlink implements host.Host.
func (h *Host) Symlink(target, path string) error {
	return h.effect("symlink", path, func() error {
		at, err := h.resolve("symlink", path, 0, false)
		if err == nil && h.files[at].Dir {
			err = &fs.PathError{Op: "symlink", Path: path, Err: syscall.EISDIR}
		}
		if err == nil {
			h.put(at, File{Link: target, Attrs: host.Attributes{Mode: 0o777}})
		}
		return err
	})
}

// put needs the lock. What it puts is synced.
func (h *Host) put(path string, file File) {
	h.files[path], h.modified[path] = file, time.Now()
	delete(h.unsynced, path)
}

// removeTree needs the lock.
func (h *Host) removeTree(path string) {
	maps.DeleteFunc(h.files, func(name string, _ File) bool { return isBelow(name, path) })
	maps.DeleteFunc(h.unsynced, func(name string, _ bool) bool { return isBelow(name, path) })
	maps.DeleteFunc(h.ended, func(name string, _ outcome) bool { return isBelow(name, path) })
}

// hasEntries needs the lock.
func (h *Host) hasEntries(path string) bool {
	for name := range h.files {
		if name != path && isBelow(name, path) {
			return true
		}
	}
	return false
}

// isBelow tells whether a path is a folder's own or of something in it.
func isBelow(path, folder string) bool {
	rest, below := strings.CutPrefix(path, folder)
	return below && (rest == "" || rest[0] == '/' || folder == "/")
}
