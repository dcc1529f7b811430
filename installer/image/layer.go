package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sort"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/installer/progress"
)

// epoch is the time of every entry and of the image, so that the digest depends on the content only.
var epoch = time.Unix(0, 0).UTC()

// entry is one file of a layer.
type entry struct {
	// path in the image, without a leading slash.
	path string
	// mode are the permission bits, size is in bytes.
	mode int64
	size int64
	open func() (io.ReadCloser, error)
	// checksum is the SHA-256 that the content must have, in hexadecimal; empty accepts any.
	checksum string
	// checksumSource names where the checksum comes from, for the error when it differs.
	checksumSource string
}

// layer is a layer in a temporary file.
type layer struct {
	file   string
	digest v1.Hash
	diffID v1.Hash
	size   int64
}

// writeLayer packs entries into a file in dir, in the order of their paths, and verifies their checksums. Memory use does not depend on the
// size of the files.
func writeLayer(ctx context.Context, dir string, entries []entry, report *progress.Reporter) (_ *layer, err error) {
	out, err := os.CreateTemp(dir, "layer-*.tar.gz")
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
	// Most of a release is compressed already: the fastest level loses little.
	zip, err := gzip.NewWriterLevel(io.MultiWriter(out, compressed, count), gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(io.MultiWriter(zip, uncompressed))
	sort.Slice(entries, func(i, j int) bool { return entries[i].path < entries[j].path })
	for _, e := range entries {
		if err := writeEntry(ctx, archive, e, report); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("packing a layer: %w", err)
	}
	return &layer{file: out.Name(), digest: hashOf(compressed), diffID: hashOf(uncompressed), size: count.n}, nil
}

func writeEntry(ctx context.Context, archive *tar.Writer, e entry, report *progress.Reporter) error {
	in, err := e.open()
	if err != nil {
		return fmt.Errorf("packing %s: %w", e.path, err)
	}
	defer func() { _ = in.Close() }()
	header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Size: e.size, ModTime: epoch, Format: tar.FormatUSTAR}
	if e.size >= 8<<30 { // the limit of USTAR
		header.Format = tar.FormatGNU
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("packing %s: %w", e.path, err)
	}
	sum := sha256.New()
	content := report.Reader(&cancelReader{ctx, in}, "packing "+e.path, e.size)
	if _, err := io.Copy(io.MultiWriter(archive, sum), content); err != nil {
		return fmt.Errorf("packing %s: %w", e.path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); e.checksum != "" && got != e.checksum {
		return fmt.Errorf("%s: checksum mismatch: got SHA-256 %s, want %s (from %s)", e.path, got, e.checksum, e.checksumSource)
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
