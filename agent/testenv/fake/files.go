package fake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
)

// lookup returns an entry and the path that it has without links.
func (h *Host) lookup(op, path string, followLast bool) (string, File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return "", File{}, ErrStopped
	}
	r := resolver{host: h, op: op, followLast: followLast, trustAll: true}
	resolved, err := r.resolve(path)
	if err == nil {
		err = h.requireExists(op, resolved)
	}
	return resolved, h.files[resolved], err
}

// requireExists needs the lock.
func (h *Host) requireExists(op, path string) error {
	if _, exists := h.files[path]; !exists {
		return pathError(op, path, syscall.ENOENT)
	}
	return nil
}

// content returns the content of a regular file.
func (h *Host) content(path string) ([]byte, error) {
	_, file, err := h.lookup("open", path, true)
	if err == nil && file.Dir {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	return bytes.Clone(file.Content), err
}

// ReadFile implements fs.FileSystem.
func (h *Host) ReadFile(path string) ([]byte, error) {
	content, err := h.content(path)
	if err == nil && len(content) > fs.MaxReadBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, fs.MaxReadBytes)
	}
	return content, err
}

// Open implements fs.FileSystem.
func (h *Host) Open(path string) (io.ReadCloser, error) {
	content, err := h.content(path)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// ReadDir implements fs.FileSystem.
func (h *Host) ReadDir(path string) ([]string, error) {
	resolved, file, err := h.lookup("open", path, true)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !file.Dir:
		return nil, pathError("readdirent", path, syscall.ENOTDIR)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.files {
		if filepath.Dir(name) == resolved && name != "/" {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Lstat implements fs.FileSystem.
func (h *Host) Lstat(path string) (fs.Info, error) {
	// A path that ends in a dot is the directory that a link points to.
	resolved, file, err := h.lookup("lstat", path, strings.HasSuffix(path, "/."))
	if err != nil {
		return fs.Info{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	info := fs.Info{Attributes: file.Attrs, Size: int64(len(file.Content)), Modified: h.modified[resolved], Dir: file.Dir, Link: file.Link}
	if file.Link != "" {
		info.Size = int64(len(file.Link))
	}
	return info, nil
}

// beforeWrite needs the lock. It is what exists at a path, or an empty file with the group that a setgid directory hands down.
func (h *Host) beforeWrite(path string) File {
	old, exists := h.files[path]
	if parent := h.files[filepath.Dir(path)].Attrs; !exists && parent.Mode&0o2000 != 0 {
		old.Attrs.GID = parent.GID
	}
	return old
}

// keepOwner replaces ids of -1 by the existing ones.
func keepOwner(attrs fs.Attributes, old File) fs.Attributes {
	if attrs.UID == -1 {
		attrs.UID = old.Attrs.UID
	}
	if attrs.GID == -1 {
		attrs.GID = old.Attrs.GID
	}
	return attrs
}

// WriteFile implements fs.FileSystem. An unchanged file is no effect.
func (h *Host) WriteFile(path string, content []byte, attrs fs.Attributes) error {
	_, old, err := h.lookup("open", path, false)
	if err == nil && !old.Dir && old.Link == "" && bytes.Equal(old.Content, content) && old.Attrs == keepOwner(attrs, old) {
		return nil
	}
	return h.replace(path, content, attrs)
}

// WriteStream implements fs.FileSystem.
func (h *Host) WriteStream(path string, content io.Reader, attrs fs.Attributes) error {
	raw, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return h.replace(path, raw, attrs)
}

func (h *Host) replace(path string, content []byte, attrs fs.Attributes) error {
	return h.effect("write", path, func() error {
		resolved, err := h.resolve("write", path, parentMode, false)
		if err != nil {
			return err
		}
		old := h.beforeWrite(resolved)
		switch {
		case old.Dir:
			return pathError("write", path, syscall.EISDIR)
		case old.Link != "":
			old = File{}
		}
		h.put(resolved, File{Content: bytes.Clone(content), Attrs: keepOwner(attrs, old)})
		return nil
	})
}

// AppendFile implements fs.FileSystem.
func (h *Host) AppendFile(path string, content []byte) error {
	return h.effect("append", path, func() error {
		resolved, err := h.resolve("open", path, parentMode, false)
		if err != nil {
			return err
		}
		_, exists := h.files[resolved]
		old := h.beforeWrite(resolved)
		switch {
		case !exists:
			old.Attrs.Mode = 0o600
		case old.Dir:
			return pathError("open", path, syscall.EISDIR)
		case old.Link != "":
			return pathError("open", path, syscall.ELOOP)
		}
		old.Content = append(bytes.Clone(old.Content), content...)
		h.put(resolved, old)
		return nil
	})
}

// AppendStream implements fs.FileSystem. What was read before content failed is appended as one effect.
func (h *Host) AppendStream(path string, content io.Reader) (int64, error) {
	raw, failed := io.ReadAll(content)
	if err := h.AppendFile(path, raw); err != nil {
		return 0, err
	}
	return int64(len(raw)), failed
}

// MkdirAll implements fs.FileSystem.
func (h *Host) MkdirAll(path string, attrs fs.Attributes) error {
	return h.effect("mkdir", path, func() error {
		resolved, err := h.resolve("mkdir", path, parentMode, true)
		if err != nil {
			return err
		}
		old := h.beforeWrite(resolved)
		if _, exists := h.files[resolved]; exists && !old.Dir {
			return pathError("open", path, syscall.ENOTDIR)
		}
		h.put(resolved, File{Dir: true, Attrs: keepOwner(attrs, old)})
		return nil
	})
}

// Remove implements fs.FileSystem.
func (h *Host) Remove(path string) error {
	return h.remove(path, func(resolved string) error {
		if h.hasEntries(resolved) {
			return pathError("remove", path, syscall.ENOTEMPTY)
		}
		return nil
	})
}

// RemoveAll implements fs.FileSystem.
func (h *Host) RemoveAll(path string) error {
	if clean := filepath.Clean(path); !filepath.IsAbs(clean) || clean == "/" {
		return fmt.Errorf("refusing to remove %q", path)
	}
	return h.remove(path, func(string) error { return nil })
}

// remove removes a path and everything below it, unless check fails.
func (h *Host) remove(path string, check func(resolved string) error) error {
	return h.effect("remove", path, func() error {
		resolved, err := h.resolve("remove", path, 0, false)
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		if err == nil {
			err = check(resolved)
		}
		if err == nil {
			h.removeTree(resolved)
		}
		return err
	})
}

// Rename implements fs.FileSystem.
func (h *Host) Rename(from, to string) error {
	return h.effect("rename", from, func() error {
		source, err := h.resolve("rename", from, 0, false)
		if err != nil {
			return err
		}
		target, err := h.resolve("rename", to, 0, false)
		if err == nil {
			err = h.checkRename(source, target)
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

// checkRename needs the lock. It returns the errors of rename(2).
func (h *Host) checkRename(source, target string) error {
	old, exists := h.files[target]
	moved, found := h.files[source]
	var errno syscall.Errno
	switch {
	case !found:
		errno = syscall.ENOENT
	case moved.Dir && target != source && isBelow(target, source):
		errno = syscall.EINVAL
	case exists && old.Dir && !moved.Dir:
		errno = syscall.EISDIR
	case exists && !old.Dir && moved.Dir:
		errno = syscall.ENOTDIR
	case exists && h.hasEntries(target):
		errno = syscall.ENOTEMPTY
	default:
		return nil
	}
	return pathError("rename", source, errno)
}

// Symlink implements fs.FileSystem.
func (h *Host) Symlink(target, path string) error {
	return h.effect("symlink", path, func() error {
		resolved, err := h.resolve("symlink", path, 0, false)
		if err == nil && h.files[resolved].Dir {
			err = pathError("symlink", path, syscall.EISDIR)
		}
		if err == nil {
			h.put(resolved, File{Link: target, Attrs: fs.Attributes{Mode: 0o777}})
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
	maps.DeleteFunc(h.results, func(name string, _ runResult) bool { return isBelow(name, path) })
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

// isBelow reports whether a path is a directory or something in it.
func isBelow(path, dir string) bool {
	rest, below := strings.CutPrefix(path, dir)
	return below && (rest == "" || rest[0] == '/' || dir == "/")
}
