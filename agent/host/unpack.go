package host

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds of what one layer may hold.
const (
	maxEntries  = 1 << 20
	maxUnpacked = 16 << 30
)

// Names by which a layer takes something away from the layers below it (OCI image specification, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// Unpack implements Host. Everything is root's and loses setuid bits, write permission of others and extended attributes; devices and
// pipes are left out. Names and links are resolved by the kernel below dir (os.Root): an entry that leads out of it is an error.
func (Machine) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, left: maxUnpacked, fresh: map[string]bool{}}
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
		if entries >= maxEntries {
			return fmt.Errorf("layer holds more than %d entries", maxEntries)
		}
		if err := u.apply(header, reader); err != nil {
			return fmt.Errorf("unpacking %q: %w", header.Name, err)
		}
	}
}

type unpacker struct {
	root *os.Root
	left int64
	// fresh holds what this layer brought, which its own opaque whiteout does not take away.
	fresh map[string]bool
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
	if base == whiteoutOpaque {
		return u.empty(path.Clean(parent))
	}
	if hidden, found := strings.CutPrefix(base, whiteoutPrefix); found {
		if hidden == "" || hidden == "." || hidden == ".." {
			return errors.New("a whiteout names no file")
		}
		return u.root.RemoveAll(parent + hidden)
	}
	if parent != "" {
		if err := u.root.MkdirAll(path.Clean(parent), 0o755); err != nil {
			return err
		}
	}
	for part := name; part != "."; part = path.Dir(part) {
		u.fresh[part] = true
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return u.dir(name)
	case tar.TypeReg:
		return u.file(name, header, content)
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

func (u *unpacker) dir(name string) error {
	if info, err := u.root.Lstat(name); err == nil && !info.IsDir() {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	return u.root.MkdirAll(name, 0o755)
}

func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	if u.left -= header.Size; u.left < 0 {
		return fmt.Errorf("layer holds more than %d bytes", int64(maxUnpacked))
	}
	// Whatever is there goes first, so that nothing is written through a link.
	if err := u.root.RemoveAll(name); err != nil {
		return err
	}
	mode := fs.FileMode(header.Mode) & 0o755
	if mode == 0 {
		mode = 0o755
	}
	file, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, content); err != nil {
		file.Close()
		return err
	}
	if err := file.Chmod(mode); err != nil {
		file.Close()
		return err
	}
	return file.Close()
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
		if u.fresh[full] {
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
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q leads out of the folder", name)
	}
	return clean, nil
}
