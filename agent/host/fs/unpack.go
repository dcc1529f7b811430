package fs

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

// Limits of one layer.
const (
	maxEntries       = 1 << 20
	maxUnpackedBytes = 16 << 30
	maxDepth         = 255
)

// Names by which a layer removes entries of the layers below it (OCI image specification, "Whiteouts").
const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
)

// Unpack implements FileSystem. All entries get the ids of the agent and lose setuid bits, write permission of others and extended
// attributes; devices and pipes are skipped. The kernel resolves names and links below dir (os.Root): an entry outside of it is an error.
func (OS) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	return unpack(ctx, dir, layer, maxEntries)
}

func unpack(ctx context.Context, dir string, layer io.Reader, limit int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := unpacker{root: root, remaining: maxUnpackedBytes, added: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
		buffer: make([]byte, 256<<10)}
	defer u.closeParent()
	reader := tar.NewReader(layer)
	for entries := 0; ; entries++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			// Read to the end, so that a reader that verifies a digest gets to do it.
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
	// remaining is how many bytes the layer may still bring.
	remaining int64
	// added holds hashes of the names that this layer brought, which its own opaque whiteouts do not remove. Full names would take too much
	// memory with a million entries.
	added  map[uint64]struct{}
	seed   maphash.Seed
	buffer []byte
	// parent is the open directory of the last file, since the next one is mostly beside it. An entry that may change directories closes
	// it.
	parent     *os.File
	parentName string
}

func (u *unpacker) isAdded(name string) bool {
	_, found := u.added[maphash.String(u.seed, name)]
	return found
}

// markAdded records a name and its parents, up to one that is recorded already.
func (u *unpacker) markAdded(name string) {
	for part := name; part != "." && !u.isAdded(part); part = path.Dir(part) {
		u.added[maphash.String(u.seed, part)] = struct{}{}
	}
}

func (u *unpacker) closeParent() {
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
		u.closeParent()
	}
	if base == whiteoutOpaque {
		return u.clearDir(path.Clean(parent))
	}
	if hidden, found := strings.CutPrefix(base, whiteoutPrefix); found {
		if hidden == "" || hidden == "." || hidden == ".." {
			return errors.New("whiteout without a file name")
		}
		return u.root.RemoveAll(parent + hidden)
	}
	if isFile(header) {
		u.markAdded(name)
		return u.writeFile(name, header, content)
	}
	if parent != "" {
		if err := u.root.MkdirAll(path.Clean(parent), 0o755); err != nil {
			return err
		}
	}
	u.markAdded(name)
	switch header.Typeflag {
	case tar.TypeDir:
		return u.mkdir(name)
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

// isFile is also true for sparse files.
func isFile(header *tar.Header) bool {
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return true
	}
	return false
}

func (u *unpacker) mkdir(name string) error {
	if info, err := u.root.Lstat(name); err == nil && !info.IsDir() {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	return u.root.MkdirAll(name, 0o755)
}

// clearDir removes what lower layers put into a directory.
func (u *unpacker) clearDir(name string) error {
	dir, err := u.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		full := path.Join(name, entry)
		if u.isAdded(full) {
			continue
		}
		if err := u.root.RemoveAll(full); err != nil {
			return err
		}
	}
	return nil
}

// localName makes the name of an entry relative to the directory; one outside of the directory is an error.
func localName(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errors.New("name contains a NUL byte")
	}
	if len(name) > unix.PathMax {
		return "", fmt.Errorf("name is longer than %d bytes", unix.PathMax)
	}
	clean := path.Clean(strings.TrimLeft(name, "/"))
	if strings.Count(clean, "/") > maxDepth {
		return "", fmt.Errorf("name has more than %d parent directories", maxDepth)
	}
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", fmt.Errorf("%q is outside of the directory", name)
	}
	return clean, nil
}
