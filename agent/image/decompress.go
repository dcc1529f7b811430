package image

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/readahead"
	"github.com/pierrec/lz4/v4"
)

const (
	// maxZstdWindow bounds the memory that a zstd stream may request; "zstd --long=25" needs as much.
	maxZstdWindow = 32 << 20
	// Up to aheadBlocks of aheadBytes are decompressed while earlier ones are being written.
	aheadBlocks = 4
	aheadBytes  = 1 << 20
)

// unpackLayer unpacks a layer, compressed or not. remaining is how many uncompressed bytes of the image may still come; it is counted down.
// uncompressed receives the uncompressed content.
func (s *Store) unpackLayer(ctx context.Context, layer io.Reader, dir string, remaining *int64, uncompressed io.Writer) error {
	content, _, err := decompress(layer)
	if err != nil {
		return err
	}
	defer content.Close()
	limited := &limitedReader{Reader: &contextReader{ctx: ctx, Reader: content}, remaining: remaining, limit: s.limits.unpackedBytes}
	// Decompression and hashing run concurrently with writing.
	ahead, err := readahead.NewReaderSize(io.TeeReader(limited, uncompressed), aheadBlocks, aheadBytes)
	if err != nil {
		return err
	}
	err = s.Host.Unpack(ctx, dir, ahead)
	ahead.Close() // waits for the reading goroutine
	return err
}

// limitedReader fails when an image unpacks to more than its limit.
type limitedReader struct {
	io.Reader
	remaining *int64
	limit     int64
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if *r.remaining -= int64(n); *r.remaining < 0 {
		return 0, fmt.Errorf("the image unpacks to more than %s, which is the limit", humanBytes(r.limit))
	}
	return n, err
}

// decompress detects the compression of a stream by its first bytes. Closing the content does not close the stream.
func decompress(stream io.Reader) (content io.ReadCloser, compressed bool, err error) {
	buffered := bufio.NewReaderSize(stream, 256<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		content, err := gzip.NewReader(buffered)
		return content, true, err
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, true, err
		}
		return &zstdReader{decoder.IOReadCloser()}, true, nil
	case bytes.Equal(magic, []byte{0x04, 0x22, 0x4d, 0x18}):
		return io.NopCloser(lz4.NewReader(buffered)), true, nil
	case bytes.HasPrefix(magic, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(buffered)), true, nil
	}
	return io.NopCloser(buffered), false, nil
}

// zstdReader names the option of zstd that makes a stream too large to decompress.
type zstdReader struct{ io.ReadCloser }

func (z *zstdReader) Read(p []byte) (int, error) {
	n, err := z.ReadCloser.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("compressed with a window of more than %s: use zstd without --long, or at most --long=25", humanBytes(maxZstdWindow))
	}
	return n, err
}

// contextReader fails with the cause of its context once that is done.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// callbackReader passes what it reads to onRead, and keeps the error that ended reading, which io.Copy and its like do not tell from an
// error of the writer.
type callbackReader struct {
	io.Reader
	onRead func([]byte)
	err    error
}

func (r *callbackReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.onRead(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// noEOF makes an end that comes too early an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
