package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/zstd"
)

// pull brings all layers of an image into the cache and gives their digests, the lowest first. Endpoints are tried in order until one
// has served everything.
func (s *Store) pull(ctx context.Context, registries Registries, ref name.Reference) ([]v1.Hash, error) {
	endpoints, err := registries.endpoints(ref)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range endpoints {
		blobs, err := s.pullFrom(ctx, registries, e, ref)
		if err == nil {
			return blobs, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.Log.Warn("An endpoint does not serve the image", "image", ref.Name(), "endpoint", e.url.Host, "error", err)
		errs = append(errs, fmt.Errorf("from %s: %w", e.url.Host, err))
	}
	return nil, errors.Join(errs...)
}

func (s *Store) pullFrom(ctx context.Context, registries Registries, e endpoint, ref name.Reference) ([]v1.Hash, error) {
	there, err := e.at(ref)
	if err != nil {
		return nil, err
	}
	transport, err := registries.transport(e, ref.Context().RegistryStr(), s.Host.ReadFile)
	if err != nil {
		return nil, err
	}
	defer transport.close()
	image, err := remote.Image(there, remote.WithContext(ctx), remote.WithTransport(transport), remote.WithAuth(registries.auth(e)),
		remote.WithPlatform(s.Platform))
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	var blobs []v1.Hash
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		if err := s.fetch(layer, digest); err != nil {
			return nil, fmt.Errorf("layer %s: %w", digest, err)
		}
		blobs = append(blobs, digest)
	}
	return blobs, nil
}

// fetch brings one layer into the cache, unless it is there. Its digest is checked before it gets its name.
func (s *Store) fetch(layer v1.Layer, digest v1.Hash) error {
	if digest.Algorithm != "sha256" {
		return fmt.Errorf("digests of kind %q are not known", digest.Algorithm)
	}
	path := s.blobPath(digest)
	if file, err := s.Host.OpenFile(path); err == nil {
		return file.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	body, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer body.Close()
	return s.Host.WriteStream(path, newVerifier(body, digest))
}

// unpackBlob unpacks a layer of the cache. The disk is not trusted more than the registry: a layer that has changed is dropped.
func (s *Store) unpackBlob(ctx context.Context, digest v1.Hash, dir string) error {
	file, err := s.Host.OpenFile(s.blobPath(digest))
	if err != nil {
		return err
	}
	defer file.Close()
	verified := newVerifier(file, digest)
	err = s.unpackStream(ctx, verified, dir)
	// Read to the end: a decompressor may stumble over the damage before its digest shows.
	if _, drained := io.Copy(io.Discard, verified); drained != nil {
		err = drained
	}
	var mismatch *mismatchError
	if errors.As(err, &mismatch) {
		if err := s.Host.Remove(s.blobPath(digest)); err != nil {
			s.Log.Warn("A damaged layer cannot be removed", "error", err)
		}
	}
	if err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	return nil
}

func (s *Store) unpackStream(ctx context.Context, stream io.Reader, dir string) error {
	plain, err := decompress(stream)
	if err != nil {
		return err
	}
	defer plain.Close()
	return s.Host.Unpack(ctx, dir, plain)
}

// decompress knows plain, gzip and zstd streams by how they begin.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// mismatchError tells that content is not what its digest says.
type mismatchError struct {
	want v1.Hash
	got  string
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("content has digest sha256:%s and not %s", e.got, e.want)
}

// verifier passes a stream on and, at its end, gives an error in place of io.EOF if the digest is another one.
type verifier struct {
	inner io.Reader
	want  v1.Hash
	sum   interface {
		io.Writer
		Sum([]byte) []byte
	}
}

func newVerifier(r io.Reader, want v1.Hash) *verifier {
	return &verifier{inner: r, want: want, sum: sha256.New()}
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.inner.Read(p)
	_, _ = v.sum.Write(p[:n])
	if err == io.EOF {
		if got := hex.EncodeToString(v.sum.Sum(nil)); got != v.want.Hex {
			return n, &mismatchError{want: v.want, got: got}
		}
	}
	return n, err
}
