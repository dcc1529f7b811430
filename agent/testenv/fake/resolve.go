package fake

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/agent/host/fs"
)

const (
	// parentMode is the mode of missing parents.
	parentMode = 0o755
	// maxLinks is how many symbolic links one path may contain.
	maxLinks = 40
)

// resolver resolves a path to one without links in its parents.
type resolver struct {
	host *Host
	// op is the operation in errors.
	op string
	// create is the mode of missing parents that are created; with 0 none is created.
	create uint32
	// followLast is set if a link at the end is followed, too.
	followLast bool
	// trustAll is set for reading, which follows every link; otherwise only those that root alone can have created are followed.
	trustAll bool
	links    int
}

// resolve needs the lock. It returns the path of an entry that is to be changed or created.
func (h *Host) resolve(op, path string, create uint32, followLast bool) (string, error) {
	r := resolver{host: h, op: op, create: create, followLast: followLast}
	return r.resolve(path)
}

func (r *resolver) resolve(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%q is not an absolute path", path)
	}
	return r.resolveFrom("/", filepath.Clean(path), r.followLast)
}

func (r *resolver) resolveFrom(dir, path string, followLast bool) (string, error) {
	names := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i, name := range names {
		last := i == len(names)-1
		switch name {
		case ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		next := filepath.Join(dir, name)
		var err error
		if r.host.files[next].Link != "" && (!last || followLast) {
			next, err = r.followLink(dir, next)
		}
		if err == nil && !last {
			err = r.requireDir(next)
		}
		if err != nil {
			return "", err
		}
		dir = next
	}
	return dir, nil
}

// requireDir creates a missing directory if the resolver does.
func (r *resolver) requireDir(path string) error {
	file, exists := r.host.files[path]
	switch {
	case !exists && r.create != 0:
		r.host.put(path, File{Dir: true, Attrs: fs.Attributes{Mode: r.create}})
	case !exists:
		return pathError(r.op, path, syscall.ENOENT)
	case !file.Dir:
		return pathError(r.op, path, syscall.ENOTDIR)
	}
	return nil
}

func (r *resolver) followLink(dir, path string) (string, error) {
	link := r.host.files[path]
	if !r.trustAll && !r.host.isTrusted(dir, link) {
		return "", &fs.LinkError{Path: path, Untrusted: dir}
	}
	if r.links++; r.links > maxLinks {
		return "", pathError(r.op, path, syscall.ELOOP)
	}
	if filepath.IsAbs(link.Link) {
		dir = "/"
	}
	return r.resolveFrom(dir, link.Link, true)
}

// isTrusted needs the lock. It reports whether root alone can have created an entry of a directory.
func (h *Host) isTrusted(dir string, entry File) bool {
	for at := dir; ; at = filepath.Dir(at) {
		attrs := h.files[at].Attrs
		othersCanWrite := attrs.Mode&0o002 != 0 || attrs.Mode&0o020 != 0 && attrs.GID != 0
		if attrs.UID != 0 || entry.Attrs.UID != 0 || othersCanWrite && attrs.Mode&0o1000 == 0 {
			return false
		}
		if at == "/" {
			return true
		}
		entry = h.files[at]
	}
}

func pathError(op, path string, errno syscall.Errno) error {
	return &os.PathError{Op: op, Path: path, Err: errno}
}
