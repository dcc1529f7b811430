package image

import (
	"archive/tar"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
)

// unpackArchive goes through an archive a second time and unpacks the layers as they come. One that comes before its turn is put aside.
func (s *Store) unpackArchive(ctx context.Context, archive string, layers []stored, dir string, report *progress) error {
	reader, closeAll, err := s.open(ctx, archive)
	if err != nil {
		return err
	}
	defer closeAll()
	u := &unpacking{store: s, layers: layers, dir: dir, left: s.Limits.UnpackedBytes, report: report, aside: map[string]string{}}
	defer u.close()
	var total int64
	for _, layer := range layers {
		total += layer.size
	}
	report.expect(total)
	for u.next < len(layers) {
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
		if err := u.member(ctx, path.Clean(header.Name), reader); err != nil {
			return err
		}
	}
	return nil
}

// unpacking is an archive's image on its way into a folder.
type unpacking struct {
	store  *Store
	layers []stored
	next   int
	dir    string
	left   int64
	report *progress
	// aside are files of the store that hold layers for later, by their names in the archive.
	aside   map[string]string
	release []func()
}

func (u *unpacking) close() {
	for _, path := range u.aside {
		if err := u.store.Host.Remove(path); err != nil {
			u.store.Log.Warn("A layer that was put aside cannot be removed", "error", err)
		}
	}
	for _, release := range u.release {
		release()
	}
}

// member takes a file of the archive: to be unpacked now, later, or never.
func (u *unpacking) member(ctx context.Context, member string, content io.Reader) error {
	uses := 0
	for _, layer := range u.layers[u.next:] {
		if layer.member == member {
			uses++
		}
	}
	if uses == 0 {
		return nil
	}
	if uses > 1 || u.layers[u.next].member != member {
		if err := u.put(ctx, member, content); err != nil {
			return err
		}
	} else if err := u.layer(ctx, content); err != nil {
		return err
	}
	for u.next < len(u.layers) {
		path, found := u.aside[u.layers[u.next].member]
		if !found {
			return nil
		}
		file, err := u.store.Host.OpenFile(path)
		if err != nil {
			return err
		}
		err = u.layer(ctx, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacking) put(ctx context.Context, member string, content io.Reader) error {
	file := "aside-" + strconv.FormatInt(u.store.asides.Add(1), 10)
	u.release = append(u.release, u.store.cache.pin(file))
	u.aside[member] = u.store.cache.path(file)
	return u.store.Host.WriteStream(u.aside[member], &contextReader{ctx: ctx, inner: content}, host.Private(0o600))
}

// layer unpacks the next layer and checks its digest.
func (u *unpacking) layer(ctx context.Context, content io.Reader) error {
	layer := u.layers[u.next]
	sum, err := v1.Hasher(layer.digest.Algorithm)
	if err != nil {
		return err
	}
	counted := &bodyReader{inner: content, got: func(p []byte) { u.report.add(int64(len(p))) }}
	if layer.plain {
		err = u.store.unpackStream(ctx, counted, u.dir, &u.left, sum)
	} else {
		raw := io.TeeReader(counted, sum)
		if err = u.store.unpackStream(ctx, raw, u.dir, &u.left, io.Discard); err == nil {
			_, err = io.Copy(io.Discard, raw) // what follows the compressed content counts too
		}
	}
	if err == nil {
		if got := hex.EncodeToString(sum.Sum(nil)); got != layer.digest.Hex {
			err = &mismatchError{want: layer.digest, got: got}
		}
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", layer.member, err)
	}
	u.next++
	return nil
}
