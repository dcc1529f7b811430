package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
)

// ReadFile implements FileSystem.
func (OS) ReadFile(path string) ([]byte, error) {
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

// Open implements FileSystem.
func (OS) Open(path string) (io.ReadCloser, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return file, nil
}

// openRegular follows links, but never blocks on a named pipe.
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

// ReadDir implements FileSystem.
func (OS) ReadDir(path string) ([]string, error) {
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

// Lstat implements FileSystem.
func (OS) Lstat(path string) (Info, error) {
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
