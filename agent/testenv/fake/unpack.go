package fake

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/agent/host/fs"
)

// Unpack implements fs.FileSystem, for what tests unpack: files, directories, links and whiteouts. Nothing of it is synced.
func (h *Host) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	entries, err := readLayer(ctx, layer)
	if err != nil {
		return err
	}
	return h.effect("unpack", dir, func() error {
		at, err := h.resolve("open", dir, 0, true)
		if err == nil {
			err = h.requireExists("open", at)
		}
		added := map[string]bool{}
		for _, e := range entries {
			if err == nil {
				err = h.unpack(at, e, added)
			}
		}
		return err
	})
}

type layerEntry struct {
	tar.Header
	content []byte
}

func readLayer(ctx context.Context, layer io.Reader) ([]layerEntry, error) {
	var entries []layerEntry
	for reader := tar.NewReader(layer); ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, layer)
			return entries, err
		}
		if err != nil {
			return nil, fmt.Errorf("reading layer: %w", err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("reading layer: %w", err)
		}
		entries = append(entries, layerEntry{*header, content})
	}
}

// unpack needs the lock. added holds the paths that this layer brought.
func (h *Host) unpack(dir string, e layerEntry, added map[string]bool) error {
	name := path.Clean(strings.TrimLeft(e.Name, "/"))
	if name == ".." || strings.HasPrefix(name, "../") {
		return fmt.Errorf("unpacking %q: it is outside of the directory", e.Name)
	}
	target := filepath.Join(dir, name)
	parent, base := filepath.Split(target)
	parent = filepath.Clean(parent)
	if hidden, found := strings.CutPrefix(base, ".wh."); found {
		h.hide(parent, hidden, added)
		return nil
	}
	file := File{Attrs: fs.Attributes{Mode: 0o755}}
	switch e.Typeflag {
	case tar.TypeDir:
		file.Dir = true
	case tar.TypeSymlink:
		file.Link, file.Attrs.Mode = e.Linkname, 0o777
	case tar.TypeReg:
		file.Content = e.content
		if mode := uint32(e.Mode) & 0o755; mode != 0 {
			file.Attrs.Mode = mode
		}
	default:
		return nil
	}
	for at := parent; isBelow(at, dir) && !h.files[at].Dir; at = filepath.Dir(at) {
		h.files[at], h.unsynced[at], added[at] = File{Dir: true, Attrs: fs.Attributes{Mode: 0o755}}, true, true
	}
	if !file.Dir || !h.files[target].Dir {
		h.removeTree(target)
		h.files[target], h.unsynced[target] = file, true
	}
	added[target] = true
	return nil
}

// hide removes what lower layers have brought: an entry, or with an opaque whiteout all entries of a directory.
func (h *Host) hide(dir, name string, added map[string]bool) {
	if name != ".wh..opq" {
		h.removeTree(filepath.Join(dir, name))
		return
	}
	var names []string
	for path := range h.files {
		if filepath.Dir(path) == dir && !added[path] {
			names = append(names, path)
		}
	}
	for _, path := range slices.Sorted(slices.Values(names)) {
		h.removeTree(path)
	}
}
