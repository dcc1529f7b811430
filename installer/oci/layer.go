package oci

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layer is a layer in a temporary file.
type layer struct {
	file   string
	digest v1.Hash
	diffID v1.Hash
	size   int64
}

// writeLayer packs entries into a file in the builder's directory, in the order of their paths, and verifies their checksums. Memory use
// does not depend on the size of the files.
func (b Builder) writeLayer(ctx context.Context, entries []Entry) (_ *layer, err error) {
	out, err := os.CreateTemp(b.Dir, "layer-*.tar.gz")
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()

	compressed, uncompressed, count := sha256.New(), sha256.New(), &counter{}
	level := b.Compression
	if level == 0 {
		level = gzip.BestSpeed
	}
	zip, err := gzip.NewWriterLevel(io.MultiWriter(out, compressed, count), level)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(io.MultiWriter(zip, uncompressed))
	sorted := slices.SortedFunc(slices.Values(entries), func(x, y Entry) int { return cmp.Compare(x.Path, y.Path) })
	for i, e := range sorted {
		if i > 0 && sorted[i-1].Path == e.Path {
			return nil, fmt.Errorf("packing %s: the layer has two entries of this path", e.Path)
		}
		if err := b.writeEntry(ctx, archive, e); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("packing a layer: %w", err)
	}
	return &layer{file: out.Name(), digest: hashOf(compressed), diffID: hashOf(uncompressed), size: count.n}, nil
}

func (b Builder) writeEntry(ctx context.Context, archive *tar.Writer, e Entry) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: e.Path, Mode: e.Mode, Uid: e.UID, Gid: e.GID, Size: e.Size, ModTime: b.created(), Format: tar.FormatUSTAR,
	}
	if e.Size >= 8<<30 { // the limit of USTAR
		header.Format = tar.FormatGNU
	}
	if e.open == nil {
		header.Typeflag, header.Name = tar.TypeDir, e.Path+"/"
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("packing %s: %w", e.Path, err)
	}
	if e.open == nil {
		return nil
	}
	in, err := e.open()
	if err != nil {
		return fmt.Errorf("packing %s: %w", e.Path, err)
	}
	defer func() { _ = in.Close() }()
	sum := sha256.New()
	content := b.Progress.Reader(&cancelReader{ctx, in}, "packing "+e.Path, e.Size)
	copied, err := io.Copy(io.MultiWriter(archive, sum), content)
	if err != nil {
		return fmt.Errorf("packing %s: %w", e.Path, err)
	}
	if copied != e.Size {
		return fmt.Errorf("packing %s: the file changed during the build: got %d bytes, want %d", e.Path, copied, e.Size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); e.Checksum != "" && got != e.Checksum {
		return fmt.Errorf("%s: checksum mismatch: got SHA-256 %s, want %s (from %s)", e.Path, got, e.Checksum, e.ChecksumSource)
	}
	return nil
}

func hashOf(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

func (l *layer) Digest() (v1.Hash, error)             { return l.digest, nil }
func (l *layer) DiffID() (v1.Hash, error)             { return l.diffID, nil }
func (l *layer) Size() (int64, error)                 { return l.size, nil }
func (l *layer) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }
func (l *layer) Compressed() (io.ReadCloser, error)   { return os.Open(l.file) }
func (l *layer) Uncompressed() (io.ReadCloser, error) { return openGzip(l.file) }

func openGzip(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	zip, err := gzip.NewReader(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{zip, file}, nil
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// cancelReader fails once its context is done.
type cancelReader struct {
	ctx context.Context
	io.Reader
}

func (r *cancelReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
