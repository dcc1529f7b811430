package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/drover-dev/drover/agent/host"
)

var archiveSuffixes = []string{".tar", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar.zst", ".tzst"}

// maxFolders bounds how deep archives are looked for.
const maxFolders = 16

// stageArchive unpacks an image from an archive of the images folder and tells whether one holds it. looked says where it was looked
// for. An archive that cannot be read is passed over.
func (s *Store) stageArchive(ctx context.Context, ref name.Reference, dir string, report *progress) (found bool, looked string, err error) {
	if s.ImagesDirectory == "" {
		return false, "", nil
	}
	w := &walk{store: s}
	if err := w.folder(s.ImagesDirectory, 0); err != nil {
		return false, "", fmt.Errorf("reading the images folder: %w", err)
	}
	for _, path := range w.archives {
		err := s.tryArchive(ctx, path, ref, dir, report)
		if err == nil {
			s.Log.Info("Image taken from archive", "image", ref.Name(), "archive", path)
			return true, "", nil
		}
		if ctx.Err() != nil {
			return false, "", context.Cause(ctx)
		}
		if !errors.Is(err, errNotHeld) {
			s.Log.Warn("An image archive cannot be used", "archive", path, "error", err)
			w.refused = append(w.refused, fmt.Sprintf("%s cannot be used: %v", path, err))
		}
	}
	looked = fmt.Sprintf("none of the %d archives in %s holds it", len(w.archives), s.ImagesDirectory)
	if len(w.refused) > 0 {
		looked += " (" + strings.Join(w.refused, ", ") + ")"
	}
	return false, looked, nil
}

// tryArchive unpacks the image if the archive holds it.
func (s *Store) tryArchive(ctx context.Context, path string, ref name.Reference, dir string, report *progress) error {
	content, err := s.scan(ctx, path)
	if err != nil {
		return err
	}
	layers, err := content.find(ref, s.Platform, s.Limits)
	if err != nil {
		return err
	}
	if err = s.unpackArchive(ctx, path, layers, dir, report); err == nil {
		report.end()
		return nil
	}
	// The folder is to hold one image and not parts of two.
	if cleared := s.clear(dir); cleared != nil {
		return cleared
	}
	return err
}

// clear empties a folder.
func (s *Store) clear(dir string) error {
	names, err := s.Host.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.Host.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// walk finds the archives below a folder, in the order of their names. Archives are trusted for what they are called and not for a
// digest, so they and their folders must be such that only root can have put them there.
type walk struct {
	store    *Store
	archives []string
	refused  []string
}

func (w *walk) folder(dir string, depth int) error {
	info, err := w.store.Host.Lstat(dir)
	if os.IsNotExist(err) || err == nil && !info.Dir && info.Link == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if reason := untrusted(info, true); reason != "" {
		w.refuse(dir, reason)
		return nil
	}
	names, err := w.store.Host.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := w.store.Host.Lstat(path)
		switch {
		case os.IsNotExist(err) || strings.HasPrefix(name, "."):
		case err != nil:
			return err
		case info.Dir && depth < maxFolders:
			if err := w.folder(path, depth+1); err != nil {
				return err
			}
		case !info.Dir && isArchive(name):
			if reason := untrusted(info, false); reason != "" {
				w.refuse(path, reason)
				continue
			}
			w.archives = append(w.archives, path)
		}
	}
	return nil
}

func (w *walk) refuse(path, reason string) {
	w.store.Log.Warn("An image archive or folder is passed over, since others than root might have changed it", "path", path, "reason", reason)
	w.refused = append(w.refused, path+" "+reason)
}

func isArchive(name string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(archiveSuffixes, func(suffix string) bool { return strings.HasSuffix(lower, suffix) })
}

// untrusted says what speaks against a file or folder, or nothing.
func untrusted(info host.Info, folder bool) string {
	switch {
	case info.Link != "":
		return "is a link: put what it points to in its place"
	case info.Other || info.Dir != folder:
		return "is no file"
	case info.UID > 0 && info.UID != os.Getuid():
		return fmt.Sprintf("belongs to user %d: make it root's", info.UID)
	case info.Mode&uint32(fs.FileMode(0o002)) != 0:
		return "can be written by everybody: take that right away"
	case info.Mode&0o020 != 0 && info.GID > 0:
		return fmt.Sprintf("can be written by group %d: take that right away", info.GID)
	}
	return ""
}
