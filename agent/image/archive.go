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

	hostfs "github.com/drover-dev/drover/agent/host/fs"
)

// archiveSuffixes are those that RKE2 and k3s look for.
var archiveSuffixes = []string{".tar", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar.zst", ".tzst"}

// stageFromArchives unpacks an image from the first archive that holds it. notFound is empty if one did, and otherwise says what was
// searched. An archive that cannot be used is skipped with a warning; err is for what no other archive or registry can cure.
func (s *Store) stageFromArchives(ctx context.Context, ref name.Reference, dir string, progress *progress) (notFound string, err error) {
	search := &archiveSearch{store: s}
	if err := search.run(s.ImagesDirectory); err != nil {
		return "", fmt.Errorf("reading the images directory: %w", err)
	}
	for _, path := range search.archives {
		err := s.stageFromArchive(ctx, path, ref, dir, progress)
		if err == nil {
			s.Log.Info("Image taken from archive", "image", ref.Name(), "archive", path)
			progress.finish()
			return "", nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if errors.Is(err, errNotInArchive) {
			continue
		}
		search.skip(path, err)
		// A layer may have been unpacked already, and the directory must hold one image only.
		if err := s.emptyDirectory(dir); err != nil {
			return "", err
		}
	}
	notFound = fmt.Sprintf("not found in any of the %d archives in %s", len(search.archives), s.ImagesDirectory)
	if len(search.skipped) > 0 {
		notFound += " (skipped " + strings.Join(search.skipped, ", ") + ")"
	}
	return notFound, nil
}

// stageFromArchive unpacks an image from one archive. Whether the archive holds the image, and in which order, is known only at its end, so
// that a compressed archive is read twice.
func (s *Store) stageFromArchive(ctx context.Context, path string, ref name.Reference, dir string, progress *progress) error {
	index, err := s.indexArchive(ctx, path)
	if err != nil {
		return err
	}
	layers, err := index.find(ref, s.platform, s.limits)
	if err != nil {
		return err
	}
	return s.unpackArchive(ctx, path, layers, dir, progress)
}

func (s *Store) emptyDirectory(dir string) error {
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

// archiveSearch finds the archives below a directory, in the order of their paths. An archive is trusted for its name and not for a digest,
// so only root may have been able to write it and the directories that it is in.
type archiveSearch struct {
	store    *Store
	archives []string
	skipped  []string
}

func (a *archiveSearch) run(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case path != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.IsDir() && !IsArchive(entry.Name()) && (path != root || entry.Type() != fs.ModeSymlink):
			return nil
		}
		info, err := a.store.Host.Lstat(path)
		if err == nil {
			err = checkTrusted(info)
		}
		switch {
		case err == nil && !entry.IsDir():
			a.archives = append(a.archives, path)
		case err != nil:
			a.skip(path, err)
			if entry.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
}

func (a *archiveSearch) skip(path string, reason error) {
	a.store.Log.Warn("Skipping image archive", "path", path, "error", reason)
	a.skipped = append(a.skipped, fmt.Sprintf("%s: %v", path, reason))
}

// IsArchive reports whether a file is taken for an image archive because of its name.
func IsArchive(name string) bool {
	lower := strings.ToLower(name)
	return slices.ContainsFunc(archiveSuffixes, func(suffix string) bool { return strings.HasSuffix(lower, suffix) })
}

// checkTrusted returns why others than root, or the agent's own user, can change a file or directory. Group root may.
func checkTrusted(info hostfs.Info) error {
	switch {
	case info.Link != "":
		return errors.New("is a symbolic link: replace it by the file itself")
	case info.Other:
		return errors.New("is not a regular file")
	case info.UID > 0 && info.UID != os.Getuid():
		return fmt.Errorf("is owned by user %d: change the owner to root", info.UID)
	case info.Mode&0o002 != 0:
		return errors.New("is writable by others: run chmod o-w")
	case info.Mode&0o020 != 0 && info.GID > 0:
		return fmt.Errorf("is writable by group %d: run chmod g-w", info.GID)
	}
	return nil
}
