package image

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host/fs"
)

// archiveUnpacker unpacks the layers of an image in one pass over an archive. Layers must be unpacked lowest first; one that comes earlier
// in the archive, or is used more than once, is buffered in a file of the cache until its turn.
type archiveUnpacker struct {
	store *Store
	// layers are those that are left to unpack, the lowest first.
	layers    []archiveLayer
	dir       string
	remaining int64
	progress  *progress
	// buffered are paths of layers, by their files in the archive; cleanup removes them.
	buffered map[string]string
	cleanup  []func()
}

func (s *Store) unpackArchive(ctx context.Context, archive string, layers []archiveLayer, dir string, progress *progress) error {
	reader, closeArchive, err := s.openArchive(ctx, archive)
	if err != nil {
		return err
	}
	defer closeArchive()
	u := &archiveUnpacker{store: s, layers: layers, dir: dir, remaining: s.limits.unpackedBytes, progress: progress,
		buffered: map[string]string{}}
	defer func() {
		for _, remove := range u.cleanup {
			remove()
		}
	}()
	var total int64
	for _, layer := range layers {
		total += layer.size
	}
	progress.start(total)
	for len(u.layers) > 0 {
		header, err := reader.Next()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", noEOF(err))
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := u.file(ctx, path.Clean(header.Name), reader); err != nil {
			return err
		}
	}
	return nil
}

// file unpacks or buffers a file of the archive if it is one of the layers, and then unpacks what can be unpacked of the buffered ones.
func (u *archiveUnpacker) file(ctx context.Context, file string, content io.Reader) error {
	uses := 0
	for _, layer := range u.layers {
		if layer.file == file {
			uses++
		}
	}
	switch {
	case uses == 0:
		return nil
	case uses == 1 && u.layers[0].file == file:
		if err := u.unpackNext(ctx, content); err != nil {
			return err
		}
	default:
		if err := u.buffer(ctx, file, content); err != nil {
			return err
		}
	}
	for len(u.layers) > 0 && u.buffered[u.layers[0].file] != "" {
		file, err := u.store.Host.Open(u.buffered[u.layers[0].file])
		if err != nil {
			return err
		}
		err = u.unpackNext(ctx, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *archiveUnpacker) buffer(ctx context.Context, file string, content io.Reader) error {
	name := bufferPrefix + strconv.FormatInt(u.store.bufferCount.Add(1), 10)
	unpin, path := u.store.cache.pin(name), u.store.cache.path(name)
	u.buffered[file] = path
	u.cleanup = append(u.cleanup, func() {
		unpin()
		if err := u.store.Host.Remove(path); err != nil {
			u.store.Log.Warn("Removing a buffered layer failed", "error", err)
		}
	})
	return u.store.Host.WriteStream(path, &contextReader{ctx: ctx, Reader: content}, fs.WithMode(0o600))
}

// unpackNext unpacks the first of the layers and compares it with its digest.
func (u *archiveUnpacker) unpackNext(ctx context.Context, content io.Reader) error {
	layer := u.layers[0]
	sum, err := v1.Hasher(layer.digest.Algorithm)
	if err != nil {
		return err
	}
	content = &callbackReader{Reader: content, onRead: func(p []byte) { u.progress.add(int64(len(p))) }}
	uncompressed := io.Writer(sum)
	if !layer.uncompressed {
		content, uncompressed = io.TeeReader(content, sum), io.Discard
	}
	err = u.store.unpackLayer(ctx, content, u.dir, &u.remaining, uncompressed)
	if err == nil && !layer.uncompressed {
		_, err = io.Copy(io.Discard, content) // what follows the compressed stream belongs to the digest
	}
	if err == nil {
		err = verifySum(sum.Sum(nil), layer.digest)
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", layer.file, err)
	}
	u.layers = u.layers[1:]
	return nil
}
