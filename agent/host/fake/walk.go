package fake

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/agent/host"
)

const (
	// parentMode is that of missing parents.
	parentMode = 0o755
	maxLinks   = 40
)

// walker finds an entry without links on the way.
type walker struct {
	host *Host
	op   string
	// make is the mode of missing parents that are made; with 0 none is made.
	make uint32
	// follow is set where a link at the end is followed too. anybody is set for reading, which follows links whoever has put them there;
	// otherwise it must be root alone that can have done it, as on the machine.
	follow, anybody bool
	links           int
}

// resolve needs the lock. It gives the path under which an entry that is to be changed is, or would be.
func (h *Host) resolve(op, path string, make uint32, follow bool) (string, error) {
	w := walker{host: h, op: op, make: make, follow: follow}
	return w.find(path)
}

func (w *walker) find(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%q is not an absolute path", path)
	}
	return w.walk("/", filepath.Clean(path), w.follow)
}

func (w *walker) walk(at, path string, follow bool) (string, error) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range names {
		last := i == len(names)-1
		switch name {
		case ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		var err error
		if w.host.files[next].Link != "" && (!last || follow) {
			next, err = w.throughLink(at, next)
		}
		if err == nil && !last {
			err = w.enter(next)
		}
		if err != nil {
			return "", err
		}
		at = next
	}
	return at, nil
}

// enter makes sure that there is a folder.
func (w *walker) enter(path string) error {
	file, there := w.host.files[path]
	switch {
	case !there && w.make != 0:
		w.host.put(path, File{Dir: true, Attrs: host.Attributes{Mode: w.make}})
	case !there:
		return &fs.PathError{Op: w.op, Path: path, Err: syscall.ENOENT}
	case !file.Dir:
		return &fs.PathError{Op: w.op, Path: path, Err: syscall.ENOTDIR}
	}
	return nil
}

func (w *walker) throughLink(folder, path string) (string, error) {
	link := w.host.files[path]
	if !w.anybody && !w.host.isTrusted(folder, link) {
		return "", &host.LinkError{Path: path, Because: folder}
	}
	if w.links++; w.links > maxLinks {
		return "", &fs.PathError{Op: w.op, Path: path, Err: syscall.ELOOP}
	}
	if filepath.IsAbs(link.Link) {
		folder = "/"
	}
	return w.walk(folder, link.Link, true)
}

// isTrusted needs the lock. It tells whether root alone can have put an entry into a folder.
func (h *Host) isTrusted(folder string, entry File) bool {
	for at := folder; ; at = filepath.Dir(at) {
		attrs := h.files[at].Attrs
		open := attrs.Mode&0o002 != 0 || attrs.Mode&0o020 != 0 && attrs.GID != 0
		if attrs.UID != 0 || entry.Attrs.UID != 0 || open && attrs.Mode&0o1000 == 0 {
			return false
		}
		if at == "/" {
			return true
		}
		entry = h.files[at]
	}
}
