package fs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// directory is an open directory. Its descriptor has O_PATH: it serves only to open, create and look at entries.
type directory struct {
	fd   int
	path string
	// trusted is set if root alone can exchange any component of the path.
	trusted bool
	stat    unix.Stat_t
}

func (d *directory) close() {
	unix.Close(d.fd)
}

// open opens an entry that is not a link. It never blocks on a named pipe.
func (d *directory) open(name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, pathError("open", filepath.Join(d.path, name), err)
		default:
			return os.NewFile(uintptr(fd), filepath.Join(d.path, name)), nil
		}
	}
}

// lstat looks at an entry without following a link.
func (d *directory) lstat(name string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat, pathError("lstat", filepath.Join(d.path, name), err)
	}
	return stat, nil
}

// sync makes the entries durable, not their content.
func (d *directory) sync() error {
	dir, err := d.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// mkdir creates a directory with exactly this mode, whatever the umask is; with own it gets the ids of the agent also below a setgid
// directory. Another process may have created it in the meantime.
func (d *directory) mkdir(name string, mode uint32, own bool) error {
	err := unix.Mkdirat(d.fd, name, mode&0o777)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	created, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer created.Close()
	attrs := WithMode(mode & 0o777)
	if own {
		attrs.UID, attrs.GID = os.Geteuid(), os.Getegid()
	}
	if err := setAttributes(created, attrs); err != nil {
		return err
	}
	return d.sync()
}

// protects reports whether root alone can exchange an entry: nobody else may write to the directory, or it is sticky, as /tmp is, and root
// owns the entry.
func (d *directory) protects(entry *unix.Stat_t) bool {
	return d.trusted && ownedByRoot(&d.stat) && (!d.othersCanWrite() || d.stat.Mode&unix.S_ISVTX != 0 && ownedByRoot(entry))
}

// othersCanWrite reports whether users other than the owner and the group root may write to the directory.
func (d *directory) othersCanWrite() bool {
	return d.stat.Mode&0o002 != 0 || d.stat.Mode&0o020 != 0 && d.stat.Gid != 0
}

// ownedByRoot is also true for files of the user that the agent runs as, which in tests is not root.
func ownedByRoot(stat *unix.Stat_t) bool {
	return stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}

// setAttributes sets the owner before the mode, because chown(2) clears setuid and setgid.
func setAttributes(file *os.File, attrs Attributes) error {
	fd := int(file.Fd())
	if attrs.UID != -1 || attrs.GID != -1 {
		if err := unix.Fchown(fd, attrs.UID, attrs.GID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, attrs.Mode)
}

func pathError(op, path string, err error) error {
	return &os.PathError{Op: op, Path: path, Err: err}
}

// isMissing is true if a path or one of its parents does not exist.
func isMissing(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
}
