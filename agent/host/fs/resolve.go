package fs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// parentMode is the mode of missing parents.
	parentMode = 0o755
	// maxLinks is how many symbolic links one path may contain, as in path_resolution(7).
	maxLinks = 40
)

// resolver resolves a path name by name with openat(2) and O_NOFOLLOW, so that no component can be exchanged between check and use. It
// follows links itself, those that root alone can have created.
type resolver struct {
	// dirs are the open directories from the root to the current one; all but the last are for "..".
	dirs []*directory
	// links counts the links that were followed.
	links int
	// create is set if missing directories are created.
	create bool
}

// openDir opens a directory. If mode is not 0, missing directories are created and synced: the parents with parentMode and the ids of the
// agent; the last with mode, and with the ids of the agent only if own is set, since a setgid parent hands down its group otherwise.
func openDir(path string, mode uint32, own bool) (*directory, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, fmt.Errorf("%q is not an absolute path", path)
	}
	r := &resolver{create: mode != 0}
	defer r.closeFrom(0)
	if err := r.openRoot(); err != nil {
		return nil, err
	}
	if err := r.resolve(filepath.Clean(path), mode, own); err != nil {
		return nil, err
	}
	last := len(r.dirs) - 1
	found := r.dirs[last]
	r.dirs = r.dirs[:last]
	return found, nil
}

// openParent opens the directory that holds a path and returns the last name of the path. If mode is not 0, missing directories are
// created.
func openParent(path string, mode uint32) (*directory, string, error) {
	path = filepath.Clean(path)
	if path == "/" {
		return nil, "", errors.New("the path is the root directory")
	}
	dir, err := openDir(filepath.Dir(path), mode, true)
	return dir, filepath.Base(path), err
}

// closeFrom closes all directories but the first n.
func (r *resolver) closeFrom(n int) {
	for _, dir := range r.dirs[n:] {
		dir.close()
	}
	r.dirs = r.dirs[:n]
}

func (r *resolver) openRoot() error {
	r.closeFrom(0)
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", "/", err)
	}
	root := &directory{fd: fd, path: "/", trusted: true}
	r.dirs = append(r.dirs, root)
	return unix.Fstat(fd, &root.stat)
}

// resolve continues from the current directory. mode and own are for the last name of path.
func (r *resolver) resolve(path string, mode uint32, own bool) error {
	names := strings.Split(strings.TrimRight(path, "/"), "/")
	for i, name := range names {
		var err error
		switch name {
		case "", ".":
		case "..":
			r.closeFrom(max(len(r.dirs)-1, 1))
		default:
			if i == len(names)-1 {
				err = r.enter(name, mode, own)
			} else {
				err = r.enter(name, parentMode, true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter makes an entry of the current directory the current one.
func (r *resolver) enter(name string, mode uint32, own bool) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	current := r.dirs[len(r.dirs)-1]
	path := filepath.Join(current.path, name)
	fd, err := unix.Openat(current.fd, name, flags, 0)
	switch {
	case errors.Is(err, unix.ENOENT) && r.create:
		if err := current.mkdir(name, mode, own); err != nil {
			return pathError("mkdir", path, err)
		}
		fd, err = unix.Openat(current.fd, name, flags, 0)
	case errors.Is(err, unix.ENOTDIR):
		return r.followLink(current, name, mode, own)
	}
	if err != nil {
		return pathError("open", path, err)
	}
	next := &directory{fd: fd, path: path}
	r.dirs = append(r.dirs, next)
	if err := unix.Fstat(fd, &next.stat); err != nil {
		return pathError("stat", path, err)
	}
	next.trusted = current.protects(&next.stat) && ownedByRoot(&next.stat)
	return nil
}

// followLink enters what a link points to. The link is opened before it is checked, and read through that descriptor.
func (r *resolver) followLink(current *directory, name string, mode uint32, own bool) error {
	path := filepath.Join(current.path, name)
	fd, err := unix.Openat(current.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return pathError("stat", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		return pathError("open", path, unix.ENOTDIR)
	}
	if !current.protects(&stat) || !ownedByRoot(&stat) {
		return &LinkError{Path: path, Untrusted: r.untrusted(path)}
	}
	if r.links++; r.links > maxLinks {
		return pathError("open", path, unix.ELOOP)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return pathError("readlink", path, err)
	}
	if filepath.IsAbs(string(target[:n])) {
		if err := r.openRoot(); err != nil {
			return err
		}
	}
	return r.resolve(string(target[:n]), mode, own)
}

// untrusted names the first directory on the way to a link that others than root can change; the link itself if there is none.
func (r *resolver) untrusted(link string) string {
	for i, dir := range r.dirs {
		sticky := dir.stat.Mode&unix.S_ISVTX != 0
		if !ownedByRoot(&dir.stat) || dir.othersCanWrite() && (!sticky || i+1 < len(r.dirs) && !ownedByRoot(&r.dirs[i+1].stat)) {
			return dir.path
		}
	}
	return link
}
