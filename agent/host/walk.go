package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// folder is an open folder, reached from the root one name at a time, so that nothing can be exchanged on the way between looking and
// opening. Its descriptor is only good for looking below it.
type folder struct {
	fd   int
	path string
	// trusted is set when only root can exchange anything on the way here.
	trusted bool
	stat    unix.Stat_t
}

func (f *folder) close() {
	unix.Close(f.fd)
}

// LinkError is a symbolic link on the way to a path that is not followed, because somebody else than root could have put it there.
type LinkError struct {
	// Path is the link, and Because the file or folder whose owner or mode lets others do that.
	Path, Because string
}

// Error implements error.
func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a symbolic link that is not followed, since others than root can change %s: "+
		"name the real folder instead, or give that to root and take the write permission from group and others", e.Path, e.Because)
}

// parentMode is that of missing parents that are made on the way.
const parentMode = 0o755

// maxLinks is how many links may be on one way, as in Linux itself.
const maxLinks = 40

// walker goes from folder to folder. The last of way is where it is; the others are for "..".
type walker struct {
	way   []*folder
	links int
	// make is set when missing folders are made.
	make bool
}

// openFolder opens a folder. Links on the way are followed where only root can have made them, as /var/run and /lib are; any other is a
// LinkError. Where mode is not 0, missing folders are made and synced: the last with this mode, and with own as the agent's own whatever the
// folder above hands down; those on the way are the agent's own and have parentMode.
func openFolder(path string, mode uint32, own bool) (*folder, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("%q is not an absolute path", path)
	}
	w := &walker{make: mode != 0}
	defer w.leave(0)
	if err := w.root(); err != nil {
		return nil, err
	}
	if err := w.follow(filepath.Clean(path), mode, own); err != nil {
		return nil, err
	}
	last := len(w.way) - 1
	found := w.way[last]
	w.way = w.way[:last]
	return found, nil
}

// makeFolder makes a folder and its parents where they are missing.
func makeFolder(path string, mode uint32) error {
	f, err := openFolder(path, mode, false)
	if err == nil {
		f.close()
	}
	return err
}

// leave closes all folders but the first few.
func (w *walker) leave(keep int) {
	for _, f := range w.way[keep:] {
		f.close()
	}
	w.way = w.way[:keep]
}

func (w *walker) root() error {
	w.leave(0)
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/", Err: err}
	}
	f := &folder{fd: fd, path: "/", trusted: true}
	w.way = append(w.way, f)
	return unix.Fstat(fd, &f.stat)
}

// follow goes on from where the walker is.
func (w *walker) follow(path string, mode uint32, own bool) error {
	names := strings.Split(strings.TrimRight(path, "/"), "/")
	for i, name := range names {
		var err error
		switch name {
		case "", ".":
		case "..":
			w.leave(max(len(w.way)-1, 1))
		default:
			if i == len(names)-1 {
				err = w.enter(name, mode, own)
			} else {
				err = w.enter(name, parentMode, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) enter(name string, mode uint32, own bool) error {
	at := w.way[len(w.way)-1]
	path := filepath.Join(at.path, name)
	fd, err := unix.Openat(at.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT) && w.make:
		if err := makeBelow(at, name, mode, own); err != nil {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		fd, err = unix.Openat(at.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	case errors.Is(err, unix.ENOTDIR):
		return w.throughLink(at, name, mode, own)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	below := &folder{fd: fd, path: path}
	w.way = append(w.way, below)
	if err := unix.Fstat(fd, &below.stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	below.trusted = at.fixes(&below.stat) && byRoot(&below.stat)
	return nil
}

// throughLink follows what is no folder, if it is a link and may be followed.
func (w *walker) throughLink(at *folder, name string, mode uint32, own bool) error {
	path := filepath.Join(at.path, name)
	fd, err := unix.Openat(at.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		return &os.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
	if !at.fixes(&stat) || !byRoot(&stat) {
		return &LinkError{Path: path, Because: w.weak(path)}
	}
	if w.links++; w.links > maxLinks {
		return &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	if filepath.IsAbs(string(target[:n])) {
		if err := w.root(); err != nil {
			return err
		}
	}
	return w.follow(string(target[:n]), mode, own)
}

// weak names what others than root can change on the way to a link.
func (w *walker) weak(link string) string {
	for i, f := range w.way {
		if !byRoot(&f.stat) || f.open() && (f.stat.Mode&unix.S_ISVTX == 0 || i+1 < len(w.way) && !byRoot(&w.way[i+1].stat)) {
			return f.path
		}
	}
	return link
}

// fixes tells whether only root can exchange an entry of the folder: nobody else writes to the folder, or it has the sticky bit, as /tmp
// has, and the entry is root's.
func (f *folder) fixes(entry *unix.Stat_t) bool {
	return f.trusted && byRoot(&f.stat) && (!f.open() || f.stat.Mode&unix.S_ISVTX != 0 && byRoot(entry))
}

// open tells whether others than root may write to the folder.
func (f *folder) open() bool {
	return f.stat.Mode&0o002 != 0 || f.stat.Mode&0o020 != 0 && f.stat.Gid != 0
}

// byRoot tells whether something is root's, or of the user that the agent runs as in tests.
func byRoot(stat *unix.Stat_t) bool {
	return stat.Uid == 0 || int(stat.Uid) == os.Geteuid()
}

// makeBelow makes a folder and sets its mode, whatever the umask is, and with own its owner, whatever the bits of the folder above say.
// Another process may have made it in the meantime.
func makeBelow(at *folder, name string, mode uint32, own bool) error {
	err := unix.Mkdirat(at.fd, name, mode&0o777)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	made, err := at.file(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer made.Close()
	attrs := Private(mode & 0o777)
	if own {
		attrs.UID, attrs.GID = os.Geteuid(), os.Getegid()
	}
	if err := setAttributes(int(made.Fd()), attrs); err != nil {
		return err
	}
	return at.sync()
}

// file opens something in the folder that is not a link. It never waits for the other end of a pipe.
func (f *folder) file(name string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(f.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(f.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(f.path, name), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(f.path, name)), nil
}

// sync makes the names in the folder durable.
func (f *folder) sync() error {
	dir, err := f.file(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lstat looks at an entry of the folder.
func (f *folder) lstat(name string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(f.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat, &os.PathError{Op: "lstat", Path: filepath.Join(f.path, name), Err: err}
	}
	return stat, nil
}

// openParent opens the folder that a path is in, and gives the name that it has there.
func openParent(path string, make uint32) (*folder, string, error) {
	path = filepath.Clean(path)
	if path == "/" {
		return nil, "", errors.New("the path is the root folder")
	}
	dir, err := openFolder(filepath.Dir(path), make, true)
	return dir, filepath.Base(path), err
}

// explain tells in words why something cannot be changed, where the error's own say too little.
func explain(err error) error {
	reasons := map[unix.Errno]string{
		unix.EROFS: "its file system is mounted read-only",
		unix.EPERM: "it or its folder is immutable (see lsattr), or a security module forbids it",
		unix.EBUSY: "it is a mount point or in use, so unmount it first",
		unix.EXDEV: "the two are on different file systems",
	}
	var errno unix.Errno
	if errors.As(err, &errno) && reasons[errno] != "" {
		return fmt.Errorf("%w: %s", err, reasons[errno])
	}
	return err
}
