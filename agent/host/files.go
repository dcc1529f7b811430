package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine is the Host that the agent runs on.
type Machine struct {
	// units is set by tests; otherwise it is systemd where that is there.
	units unitManager
}

var _ Host = Machine{}

// MaxReadBytes bounds what ReadFile takes into memory.
const MaxReadBytes = 64 << 20

// ReadFile implements Host.
func (Machine) ReadFile(path string) ([]byte, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, MaxReadBytes+1))
	if err == nil && len(raw) > MaxReadBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, MaxReadBytes)
	}
	return raw, err
}

// OpenFile implements Host.
func (Machine) OpenFile(path string) (io.ReadCloser, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// openRegular follows links, but never waits for the other end of a pipe.
func openRegular(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
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

// AppendFile implements Host.
func (Machine) AppendFile(path string, content []byte) error {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return err
	}
	defer dir.close()
	file, made, err := dir.forAppending(name)
	if err != nil {
		return err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Truncate(before.Size()) // on a full disk half a line may have been written
		return explain(err)
	}
	if made {
		return dir.sync()
	}
	return nil
}

// forAppending opens a file of mode 0600, or makes it.
func (f *folder) forAppending(name string) (file *os.File, made bool, err error) {
	file, err = f.file(name, unix.O_APPEND|unix.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		made = true
		file, err = f.file(name, unix.O_APPEND|unix.O_WRONLY|unix.O_CREAT, 0o600)
	}
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, false, fmt.Errorf("%w: it is a symbolic link, which is not followed", err)
	case err != nil:
		return nil, false, explain(err)
	}
	return file, made, nil
}

// MakeDir implements Host.
func (Machine) MakeDir(path string, attrs Attributes) error {
	opened, err := openFolder(path, attrs.Mode&0o777|0o100, false)
	if err != nil {
		return explain(err)
	}
	defer opened.close()
	dir, err := opened.file(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	now := opened.stat
	if now.Mode&0o7777 == attrs.Mode && (attrs.UID == -1 || int(now.Uid) == attrs.UID) && (attrs.GID == -1 || int(now.Gid) == attrs.GID) {
		return nil
	}
	if err := setAttributes(int(dir.Fd()), attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s: %w", path, explain(err))
	}
	return dir.Sync()
}

// setAttributes sets the owner first, because that clears setuid and setgid.
func setAttributes(fd int, attrs Attributes) error {
	if attrs.UID != -1 || attrs.GID != -1 {
		if err := unix.Fchown(fd, attrs.UID, attrs.GID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, attrs.Mode)
}

// Lstat implements Host.
func (Machine) Lstat(path string) (Info, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Info{}, err
	}
	found := Info{Size: info.Size(), Dir: info.IsDir(), Modified: info.ModTime()}
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
