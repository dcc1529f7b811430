package local

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	hostfs "github.com/drover-dev/drover/agent/host/fs"
)

const (
	planSuffix     = ".plan"
	positionSuffix = ".pos"
	skipSuffix     = ".skip"
)

// scan finds the plans of the directory and of those below it: by name, whether a skip file disables it. Names that begin with a dot are
// ignored, with everything below them. Each directory is watched before it is read, so that no change is missed between the two.
func (d *Directory) scan(watch func(dir string) error) (map[string]bool, error) {
	root, err := filepath.EvalSymlinks(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.Host.MkdirAll(d.Path, hostfs.WithMode(0o700)); err == nil {
			d.Log.Info("Created the directory of local plans", "path", d.Path)
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
		case errors.Is(err, fs.ErrNotExist) && path != root: // removed meanwhile, for which there is an event
		case err != nil:
			errs = append(errs, fmt.Errorf("reading %s: %w", path, err))
		case path == root && !entry.IsDir():
			errs = append(errs, fmt.Errorf("%s is not a directory", path))
		case path != root && isHidden(path):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			d.warnWatch(watch(path))
		case strings.HasSuffix(path, planSuffix+skipSuffix):
			skips[strings.TrimSuffix(entry.Name(), skipSuffix)] = true
		case strings.HasSuffix(path, planSuffix):
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
