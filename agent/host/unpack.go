package host

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what one layer may hold.
const (
	maxEntries  = 1 << 20
	maxUnpacked = 16 << 30
	maxDepth    = 255
)

// Names by which a layer takes something away from the layers below it (OCI image specification, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// Unpack implements Host. Everything is root's and loses setuid bits, write permission of others and extended attributes; devices and
// pipes are left out. Names and links are resolved by the kernel below dir (os.Root): an entry that leads out of it is an error.
func (Machine) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	return unpack(ctx, dir, layer, maxEntries)
}

func unpack(ctx context.Context, dir string, layer io.Reader, limit int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, left: maxUnpacked, fresh: map[uint64]struct{}{}, seed: maphash.MakeSeed(), buffer: make([]byte, 256<<10)}
	defer u.forget()
	reader := tar.NewReader(layer)
	for entries := 0; ; entries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			// Read to the end, so that a reader that checks a digest comes to do it.
			_, err = io.Copy(io.Discard, layer)
			return err
		}
		if err != nil {
			return fmt.Errorf("reading layer: %w", err)
		}
		if entries >= limit {
			return fmt.Errorf("layer holds more than %d entries", limit)
		}
		if err := u.apply(header, reader); err != nil {
			return fmt.Errorf("unpacking %q: %w", header.Name, err)
		}
	}
}

type unpacker struct {
	root *os.Root
	left int64
	// fresh holds hashes of the names that this layer brought, which its own opaque whiteouts do not take away.
	fresh  map[uint64]struct{}
	seed   maphash.Seed
	buffer []byte
	// parent is the folder of the file that came last, open, since the next one is mostly beside it. Whatever changes folders forgets it.
	parent     *os.File
	parentName string
}

func (u *unpacker) isFresh(name string) bool {
	_, found := u.fresh[maphash.String(u.seed, name)]
	return found
}

// freshen notes a name and the folders above it, up to one that is noted already.
func (u *unpacker) freshen(name string) {
	for part := name; part != "." && !u.isFresh(part); part = path.Dir(part) {
		u.fresh[maphash.String(u.seed, part)] = struct{}{}
	}
}

func (u *unpacker) forget() {
	if u.parent != nil {
		u.parent.Close()
		u.parent = nil
	}
}

func (u *unpacker) apply(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := localName(header.Name)
	if err != nil || name == "." {
		return err
	}
	parent, base := path.Split(name)
	if !isFile(header) || strings.HasPrefix(base, whiteoutPrefix) {
		u.forget()
	}
	if base == whiteoutOpaque {
		return u.empty(path.Clean(parent))
	}
	if hidden, found := strings.CutPrefix(base, whiteoutPrefix); found {
		if hidden == "" || hidden == "." || hidden == ".." {
			return errors.New("a whiteout names no file")
		}
		return u.root.RemoveAll(parent + hidden)
	}
	if isFile(header) {
		u.freshen(name)
		return u.file(name, header, content)
	}
	if parent != "" {
		if err := u.root.MkdirAll(path.Clean(parent), 0o755); err != nil {
			return err
		}
	}
	u.freshen(name)
	switch header.Typeflag {
	case tar.TypeDir:
		return u.dir(name)
	case tar.TypeSymlink:
		if err := u.root.RemoveAll(name); err != nil {
			return err
		}
		return u.root.Symlink(header.Linkname, name)
	case tar.TypeLink:
		target, err := localName(header.Linkname)
		if err != nil {
			return err
		}
		if err := u.root.RemoveAll(name); err != nil {
			return err
		}
		return u.root.Link(target, name)
	default:
		return nil // devices and pipes
	}
}

// isFile is also true for files with holes.
func isFile(header *tar.Header) bool {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return true
	}
	return false
}

func (u *unpacker) dir(name string) error {
	if info, err := u.root.Lstat(name); err == nil && !info.IsDir() {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	return u.root.MkdirAll(name, 0o755)
}

// empty removes what lower layers put into a folder.
func (u *unpacker) empty(dir string) error {
	folder, err := u.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(-1)
	folder.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		full := path.Join(dir, name)
		if u.isFresh(full) {
			continue
		}
		if err := u.root.RemoveAll(full); err != nil {
			return err
		}
	}
	return nil
}

// localName is a name relative to the folder; one that climbs out of it is an error.
func localName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errors.New("the name holds a zero byte")
	}
	if len(name) > unix.PathMax {
		return "", fmt.Errorf("the name is longer than %d bytes", unix.PathMax)
	}
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if strings.Count(clean, "/") > maxDepth {
		return "", fmt.Errorf("it lies more than %d folders deep", maxDepth)
	}
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q leads out of the folder", name)
	}
	return clean, nil
}
