package host

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	if u.left -= header.Size; u.left < 0 {
		return fmt.Errorf("layer holds more than %d bytes", int64(maxUnpacked))
	}
	mode := fs.FileMode(header.Mode) & 0o755
	if mode == 0 {
		mode = 0o755
	}
	file, err := u.create(name, mode)
	if err != nil {
		return err
	}
	err = u.copy(file, content, hasHoles(header))
	if err == nil && hasHoles(header) {
		err = file.Truncate(header.Size)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// create makes a new file; whatever is there goes first, so that nothing is written through a link. The folder was found by os.Root, and
// one name in it leads nowhere else.
func (u *unpacker) create(name string, mode fs.FileMode) (*os.File, error) {
	dir, base := path.Split(name)
	for try := 0; ; try++ {
		if err := u.enter(path.Clean(dir)); err != nil {
			return nil, err
		}
		fd, err := unix.Openat(int(u.parent.Fd()), base, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EEXIST) && try < 2:
			u.forget()
			if err := u.root.RemoveAll(name); err != nil {
				return nil, err
			}
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// enter opens the folder for the next file, or keeps it.
func (u *unpacker) enter(dir string) error {
	if u.parent != nil && u.parentName == dir {
		return nil
	}
	u.forget()
	parent, err := u.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		parent, err = u.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return err
	}
	u.parent, u.parentName = parent, dir
	return nil
}

// hasHoles tells whether the archive holds less of a file than its size.
func hasHoles(header *tar.Header) bool {
	return header.Typeflag == tar.TypeGNUSparse || header.PAXRecords["GNU.sparse.major"] != "" || header.PAXRecords["GNU.sparse.map"] != ""
}

// copy is io.Copy with a buffer for all files, without its attempts to let the kernel do it. Holes stay holes, so that a small archive
// does not fill the disk.
func (u *unpacker) copy(to *os.File, content io.Reader, holes bool) error {
	for {
		n, err := content.Read(u.buffer)
		if n > 0 {
			if holes && len(bytes.TrimLeft(u.buffer[:n], "\x00")) == 0 {
				_, failed := to.Seek(int64(n), io.SeekCurrent)
				if failed != nil {
					return failed
				}
			} else if _, err := to.Write(u.buffer[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
