package image

import (
	"compress/bzip2"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var archiveSuffixes = []string{".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.zst", ".tzst"}

// stageArchive unpacks an image from an archive of the images folder, as "docker save" makes them, and tells whether one holds it. An
// archive that cannot be read is passed over.
func (s *Store) stageArchive(ctx context.Context, ref name.Reference, dir string) (bool, error) {
	tag, isTag := ref.(name.Tag)
	if s.ImagesDirectory == "" || !isTag {
		return false, nil
	}
	names, err := s.Host.ReadDir(s.ImagesDirectory)
	if err != nil {
		return false, fmt.Errorf("reading the images folder: %w", err)
	}
	for _, file := range names {
		lower := strings.ToLower(file)
		if strings.HasPrefix(file, ".") || !slices.ContainsFunc(archiveSuffixes, func(s string) bool { return strings.HasSuffix(lower, s) }) {
			continue
		}
		path := filepath.Join(s.ImagesDirectory, file)
		image, err := s.find(path, tag)
		if err != nil {
			s.Log.Warn("An image archive cannot be read", "archive", path, "error", err)
			continue
		}
		if image != nil {
			s.Log.Info("Image found in archive", "image", ref.Name(), "archive", path)
			return true, s.unpackImage(ctx, image, dir)
		}
	}
	return false, nil
}

// find gives the image of an archive, or nil if that holds another one.
func (s *Store) find(path string, tag name.Tag) (v1.Image, error) {
	opener := func() (io.ReadCloser, error) { return s.openArchive(path) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return nil, err
	}
	for _, described := range manifest {
		for _, text := range described.RepoTags {
			if held, err := name.NewTag(text); err == nil && held.Name() == tag.Name() {
				return tarball.Image(opener, &held)
			}
		}
	}
	return nil, nil
}

func (s *Store) openArchive(path string) (io.ReadCloser, error) {
	file, err := s.Host.OpenFile(path)
	if err != nil {
		return nil, err
	}
	plain, err := decompressArchive(path, file)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &archive{Reader: plain, plain: plain, file: file}, nil
}

func decompressArchive(path string, file io.Reader) (io.ReadCloser, error) {
	if lower := strings.ToLower(path); strings.HasSuffix(lower, ".bz2") || strings.HasSuffix(lower, ".tbz") {
		return io.NopCloser(bzip2.NewReader(file)), nil
	}
	return decompress(file)
}

// archive closes both the decompressor and the file below it.
type archive struct {
	io.Reader
	plain, file io.Closer
}

func (a *archive) Close() error {
	err := a.plain.Close()
	if closed := a.file.Close(); err == nil {
		err = closed
	}
	return err
}

func (s *Store) unpackImage(ctx context.Context, image v1.Image, dir string) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for i, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		err = s.Host.Unpack(ctx, dir, content)
		content.Close()
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
	}
	return nil
}
