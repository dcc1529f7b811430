// Package image brings the content of OCI images into a folder: from archives on the machine, or from registries and their mirrors.
// Every byte from a registry is checked against its digest before it is used. It runs nothing and keeps no container's state.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
)

// keptImages is of how many images the layers are kept, so that an attempt that is made again need not fetch them again.
const keptImages = 2

// Options of a Store.
type Options struct {
	Host host.Host
	Log  *slog.Logger
	// CacheDirectory keeps layers.
	CacheDirectory string
	// ImagesDirectory holds archives of images, looked at before any registry; it may be missing.
	ImagesDirectory string
	// RegistriesFiles are looked at in order; the first that exists counts.
	RegistriesFiles []string
	// Platform of images with more than one; the zero value is the machine's own.
	Platform v1.Platform
}

// Store stages images, one at a time.
type Store struct {
	Options
	mu sync.Mutex
}

// New makes a Store.
func New(options Options) *Store {
	if options.Platform.OS == "" {
		options.Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	return &Store{Options: options}
}

// Stage unpacks an image into a folder that exists.
func (s *Store) Stage(ctx context.Context, image, dir string, _ func(done, total int64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	if found, err := s.stageArchive(ctx, ref, dir); found || err != nil {
		return err
	}
	registries, err := s.registries()
	if err != nil {
		return err
	}
	blobs, err := s.pull(ctx, registries, ref)
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		if err := s.unpackBlob(ctx, blob, dir); err != nil {
			return err
		}
	}
	s.remember(blobs)
	return nil
}

func (s *Store) registries() (Registries, error) {
	for _, path := range s.RegistriesFiles {
		raw, err := s.Host.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Registries{}, err
		}
		registries, err := DecodeRegistries(raw)
		if err != nil {
			return Registries{}, fmt.Errorf("%s: %w", path, err)
		}
		return registries, nil
	}
	return Registries{}, nil
}

// blobPath is where a layer is kept.
func (s *Store) blobPath(digest v1.Hash) string {
	return filepath.Join(s.CacheDirectory, digest.Algorithm+"-"+digest.Hex)
}

// remember notes which layers the last images had, and drops all others. It is no error if that fails.
func (s *Store) remember(blobs []v1.Hash) {
	path := filepath.Join(s.CacheDirectory, "recent.json")
	var recent [][]string
	if raw, err := s.Host.ReadFile(path); err == nil {
		_ = json.Unmarshal(raw, &recent)
	}
	names := make([]string, 0, len(blobs))
	for _, blob := range blobs {
		names = append(names, filepath.Base(s.blobPath(blob)))
	}
	recent = slices.DeleteFunc(recent, func(other []string) bool { return slices.Equal(other, names) })
	recent = append([][]string{names}, recent...)
	recent = recent[:min(len(recent), keptImages)]
	raw, err := json.Marshal(recent)
	if err == nil {
		err = s.Host.WriteFile(path, raw, host.Private(0o600))
	}
	if err != nil {
		s.Log.Warn("The image cache cannot be written", "error", err)
		return
	}
	existing, err := s.Host.ReadDir(s.CacheDirectory)
	if err != nil {
		s.Log.Warn("The image cache cannot be read", "error", err)
		return
	}
	kept := slices.Concat(recent...)
	for _, file := range existing {
		if file == filepath.Base(path) || slices.Contains(kept, file) {
			continue
		}
		if err := s.Host.Remove(filepath.Join(s.CacheDirectory, file)); err != nil {
			s.Log.Warn("A layer cannot be removed", "error", err)
		}
	}
}
