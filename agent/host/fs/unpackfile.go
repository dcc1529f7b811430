package fs

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

func (u *unpacker) writeFile(name string, header *tar.Header, content io.Reader) error {
	if u.remaining -= header.Size; u.remaining < 0 {
		return fmt.Errorf("layer holds more than %d bytes", int64(maxUnpackedBytes))
	}
	mode := fs.FileMode(header.Mode) & 0o755
	if mode == 0 {
		mode = 0o755
	}
	file, err := u.create(name, mode)
	if err != nil {
		return err
	}
	sparse := isSparse(header)
	err = u.copy(file, content, sparse)
	if err == nil && sparse {
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

// create creates a new file; what is there is removed first, so that nothing is written through a link. os.Root has resolved the directory,
// and a single name below it is not resolved any further.
func (u *unpacker) create(name string, mode fs.FileMode) (*os.File, error) {
	dir, base := path.Split(name)
	for try := 0; ; try++ {
		if err := u.openParent(path.Clean(dir)); err != nil {
			return nil, err
		}
		fd, err := unix.Openat(int(u.parent.Fd()), base,
			unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode))
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EEXIST) && try < 2:
			u.closeParent()
			if err := u.root.RemoveAll(name); err != nil {
				return nil, err
			}
		default:
			return nil, pathError("open", name, err)
		}
	}
}

// openParent opens the directory for the next file, and creates it if it is missing.
func (u *unpacker) openParent(dir string) error {
	if u.parent != nil && u.parentName == dir {
		return nil
	}
	u.closeParent()
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

// isSparse reports whether the archive holds less of a file than its size.
func isSparse(header *tar.Header) bool {
	return header.Typeflag == tar.TypeGNUSparse || header.PAXRecords["GNU.sparse.major"] != "" || header.PAXRecords["GNU.sparse.map"] != ""
}

// copy is io.Copy with one buffer for all files, and without its attempts to copy in the kernel. Holes of a sparse file stay holes, so
// that a small archive does not fill the disk.
func (u *unpacker) copy(to *os.File, content io.Reader, sparse bool) error {
	for {
		n, err := content.Read(u.buffer)
		if n > 0 {
			if sparse && len(bytes.TrimLeft(u.buffer[:n], "\x00")) == 0 {
				if _, err := to.Seek(int64(n), io.SeekCurrent); err != nil {
					return err
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
