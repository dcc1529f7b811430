package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Machine is the Host that the agent runs on.
type Machine struct {
	// units is set by tests; otherwise it is systemd where that is there.
	units unitManager
}

var _ Host = Machine{}

// maxReadBytes bounds what ReadFile takes into memory.
const maxReadBytes = 64 << 20

// ReadFile implements Host.
func (Machine) ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxReadBytes+1))
	if err == nil && len(raw) > maxReadBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxReadBytes)
	}
	return raw, err
}

// OpenFile implements Host.
func (Machine) OpenFile(path string) (io.ReadCloser, error) {
	return os.Open(path)
}

// ReadDir implements Host.
func (Machine) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, err
}

// WriteFile implements Host: temporary file in the same folder, owner, mode, sync, rename, sync of the folder. A link in the file's
// place is replaced, not followed.
func (m Machine) WriteFile(path string, content []byte, attrs Attributes) error {
	attrs, same := m.compare(path, content, attrs)
	if same {
		return nil
	}
	return writeWhole(path, bytes.NewReader(content), attrs)
}

// WriteStream implements Host.
func (Machine) WriteStream(path string, content io.Reader) error {
	return writeWhole(path, content, Private(0o600))
}

// compare tells whether the file is so already, and fills in an owner that is to stay.
func (m Machine) compare(path string, content []byte, attrs Attributes) (Attributes, bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return attrs, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return attrs, false
	}
	if attrs.UID == -1 {
		attrs.UID = int(stat.Uid)
	}
	if attrs.GID == -1 {
		attrs.GID = int(stat.Gid)
	}
	if stat.Mode&0o7777 != attrs.Mode || int(stat.Uid) != attrs.UID || int(stat.Gid) != attrs.GID || info.Size() != int64(len(content)) {
		return attrs, false
	}
	existing, err := m.ReadFile(path)
	return attrs, err == nil && bytes.Equal(existing, content)
}

func writeWhole(path string, content io.Reader, attrs Attributes) (err error) {
	dir := filepath.Dir(path)
	if err := makeParents(dir, 0o755); err != nil {
		return err
	}
	// Mode 0600 from the first byte: nobody reads a secret from the temporary file.
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		temp.Close()
		if err != nil {
			os.Remove(temp.Name())
		}
	}()
	if _, err := io.Copy(temp, content); err != nil {
		return err
	}
	if err := setAttributes(int(temp.Fd()), attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s: %w", path, err)
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// setAttributes sets the owner first, because that clears setuid and setgid.
func setAttributes(fd int, attrs Attributes) error {
	if attrs.UID != -1 || attrs.GID != -1 {
		if err := syscall.Fchown(fd, attrs.UID, attrs.GID); err != nil {
			return err
		}
	}
	return syscall.Fchmod(fd, attrs.Mode)
}

// AppendFile implements Host.
func (Machine) AppendFile(path string, content []byte) error {
	if err := makeParents(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	_, statErr := os.Lstat(path)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err := file.Write(content); err != nil {
		_ = file.Truncate(before.Size()) // on a full disk half a line may have been written
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if statErr != nil {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

// MakeDir implements Host.
func (Machine) MakeDir(path string, attrs Attributes) error {
	if err := makeParents(path, os.FileMode(attrs.Mode&0o777)); err != nil {
		return err
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := setAttributes(int(dir.Fd()), attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s: %w", path, err)
	}
	return dir.Sync()
}

// makeParents makes a folder and its missing parents and syncs each folder that gets a new name.
func makeParents(path string, mode os.FileMode) error {
	info, err := os.Stat(path)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", path)
		}
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := makeParents(parent, mode); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// Remove implements Host.
func (Machine) Remove(path string) error {
	err := os.Remove(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	}
	return syncDir(filepath.Dir(path))
}

// RemoveAll implements Host.
func (Machine) RemoveAll(path string) error {
	if clean := filepath.Clean(path); !filepath.IsAbs(clean) || clean == "/" {
		return fmt.Errorf("refusing to remove %q", path)
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Lstat implements Host.
func (Machine) Lstat(path string) (Info, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	found := Info{Size: info.Size(), Dir: info.IsDir()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		found.Attributes = Attributes{Mode: stat.Mode & 0o7777, UID: int(stat.Uid), GID: int(stat.Gid)}
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		found.Link, err = os.Readlink(path)
	case !info.IsDir() && !info.Mode().IsRegular():
		found.Other = true
	}
	return found, err
}

// Rename implements Host.
func (Machine) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(from)); err != nil || filepath.Dir(from) == filepath.Dir(to) {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// Symlink implements Host.
func (Machine) Symlink(target, path string) error {
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp-link")
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
