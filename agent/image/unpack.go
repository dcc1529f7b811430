package image

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/readahead"
	"github.com/pierrec/lz4/v4"
)

const (
	// maxWindow bounds the memory that a zstd stream may ask for; "zstd --long=25" needs as much.
	maxWindow = 32 << 20
	// aheadBlocks of aheadBytes are decompressed while earlier ones are being written.
	aheadBlocks = 4
	aheadBytes  = 1 << 20
)

// unpackBlob unpacks a layer of the store, of which left bytes may come.
func (s *Store) unpackBlob(ctx context.Context, digest v1.Hash, dir string, left *int64) error {
	file, err := s.Host.OpenFile(s.cache.path(fileName(digest)))
	if err != nil {
		return err
	}
	defer file.Close()
	return s.unpackStream(ctx, file, dir, left, io.Discard)
}

// unpackStream unpacks a layer, compressed or not. sum is given the uncompressed content.
func (s *Store) unpackStream(ctx context.Context, stream io.Reader, dir string, left *int64, sum io.Writer) error {
	plain, err := decompress(stream)
	if err != nil {
		return err
	}
	defer plain.Close()
	bounded := &boundedReader{inner: &contextReader{ctx: ctx, inner: plain}, left: left, limit: s.Limits.UnpackedBytes}
	// Decompressing and hashing go on beside the writing.
	ahead, err := readahead.NewReaderSize(io.TeeReader(bounded, sum), aheadBlocks, aheadBytes)
	if err != nil {
		return err
	}
	err = s.Host.Unpack(ctx, dir, ahead)
	ahead.Close() // waits until nothing is read any more
	return err
}

// boundedReader ends with an error when an image unpacks to more than it may.
type boundedReader struct {
	inner io.Reader
	left  *int64
	limit int64
}

func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if *r.left -= int64(n); *r.left < 0 {
		return 0, fmt.Errorf("the image unpacks to more than %s, which is the limit", size(r.limit))
	}
	return n, err
}

// Streams begin so.
var (
	gzipMagic  = []byte{0x1f, 0x8b}
	zstdMagic  = []byte{0x28, 0xb5, 0x2f, 0xfd}
	lz4Magic   = []byte{0x04, 0x22, 0x4d, 0x18}
	bzip2Magic = []byte("BZh")
)

// decompress knows what a stream is compressed with by how it begins. Closing the result does not close the stream.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 256<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, gzipMagic):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, zstdMagic):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return &zstdReader{decoder.IOReadCloser()}, nil
	case bytes.Equal(magic, lz4Magic):
		return io.NopCloser(lz4.NewReader(buffered)), nil
	case bytes.HasPrefix(magic, bzip2Magic):
		return io.NopCloser(bzip2.NewReader(buffered)), nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// zstdReader says what to do about a window that is too large.
type zstdReader struct{ io.ReadCloser }

func (z *zstdReader) Read(p []byte) (int, error) {
	n, err := z.ReadCloser.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("it is compressed with a window of more than %s: use zstd without --long, or --long=25 at most", size(maxWindow))
	}
	return n, err
}
