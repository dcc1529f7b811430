package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent/host"
)

const (
	planSuffix     = ".plan"
	positionSuffix = ".pos"
	skipSuffix     = ".skip"
)

// scan finds the plans of the folder and of the folders in it: by name, whether a skip file disables it. Names that begin with a dot are left
// out, with all that is below them. Each folder is watched before it is read, so that no change falls between.
func (d *Directory) scan(w *watcher) (map[string]bool, error) {
	w.begin()
	root, err := filepath.EvalSymlinks(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Host.MakeDir(d.Path, host.Private(0o700)); err == nil {
			d.Log.Info("The folder of local plans has been made", "path", d.Path)
			root, err = filepath.EvalSymlinks(d.Path)
		}
	}
	if err != nil {
		return nil, err
	}
	found, skips := map[string]bool{}, map[string]bool{}
	var errs []error
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != root:
			return nil // it has gone meanwhile, of which the kernel tells
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s: %w", path, err))
			return nil
		case path == root && !entry.IsDir():
			errs = append(errs, fmt.Errorf("%s is not a folder", path))
		case path != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			w.add(path)
		case strings.HasSuffix(entry.Name(), planSuffix+skipSuffix):
			skips[strings.TrimSuffix(entry.Name(), skipSuffix)] = true
		case strings.HasSuffix(entry.Name(), planSuffix):
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			found[strings.TrimSuffix(relative, planSuffix)] = false
		}
		return nil
	})
	for name := range found {
		found[name] = skips[filepath.Base(name)+planSuffix]
	}
	return found, errors.Join(append(errs, err)...)
}
