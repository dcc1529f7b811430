package image

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// sideBySide is how many layers are fetched at the same time.
const sideBySide = 3

// fetchAll brings all layers into the store.
func (p *pull) fetchAll(ctx context.Context, layers []v1.Descriptor) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	started := map[v1.Hash]bool{}
	for _, layer := range layers {
		if started[layer.Digest] {
			continue
		}
		started[layer.Digest] = true
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := p.fetch(ctx, layer); err != nil {
				return fmt.Errorf("layer %s: %w", layer.Digest, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// fetch brings one layer into the store, unless it is there and is what its digest says.
func (p *pull) fetch(ctx context.Context, layer v1.Descriptor) error {
	name := fileName(layer.Digest)
	release, err := p.store.locks.lock(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	there, err := p.verify(ctx, layer)
	if err != nil || there {
		return err
	}
	p.cache.began(name + partSuffix)
	d := &download{pull: p, layer: layer, path: p.cache.path(name)}
	err = p.effort(layer.Digest.String()).run(ctx, p.sessions(), func(s *session, moved func()) error { return d.from(ctx, s, moved) })
	if errors.Is(err, syscall.ENOSPC) {
		p.store.Log.Warn("The disk is full, all images that are not in use are removed", "error", err)
		p.cache.collect(true)
		err = p.effort(layer.Digest.String()).run(ctx, p.sessions(), func(s *session, moved func()) error { return d.from(ctx, s, moved) })
	}
	var failed *failure
	if errors.As(err, &failed) && d.have > 0 {
		return fmt.Errorf("%s of %s are there: %w", size(d.have), size(layer.Size), err)
	}
	return err
}

// verify tells whether a layer is in the store. The disk is not trusted more than a registry: a layer that has changed is dropped.
func (p *pull) verify(ctx context.Context, layer v1.Descriptor) (bool, error) {
	path := p.cache.path(fileName(layer.Digest))
	sum, n, err := p.store.sum(ctx, path, layer.Digest.Algorithm)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err == nil && hex.EncodeToString(sum.Sum(nil)) == layer.Digest.Hex {
		p.progress.add(n)
		return true, nil
	}
	p.store.Log.Warn("A layer of the image store is damaged and is fetched again", "layer", layer.Digest.String(), "error", err)
	return false, p.store.Host.Remove(path)
}

// sum reads a file and gives the state of its digest, and its size.
func (s *Store) sum(ctx context.Context, path, algorithm string) (hash.Hash, int64, error) {
	sum, err := v1.Hasher(algorithm)
	if err != nil {
		return nil, 0, err
	}
	file, err := s.Host.OpenFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	n, err := io.CopyBuffer(sum, &contextReader{ctx: ctx, inner: file}, make([]byte, 256<<10))
	return sum, n, err
}

// download is one layer on its way. What came is kept in a part, which any endpoint may continue, also after a restart.
type download struct {
	*pull
	layer v1.Descriptor
	// path is where the layer will be.
	path string
	// have is how much of it is there, and sum the digest so far; without sum the part must be read first.
	have int64
	sum  hash.Hash
	// counted is how much of it progress has heard of.
	counted int64
	// mixed is set when not all of the part is from the present endpoint.
	mixed bool
}

// mismatchError tells that content is not what its digest says.
type mismatchError struct {
	want v1.Hash
	got  string
}

func (e *mismatchError) Error() string {
	return fmt.Sprintf("its content has the digest %s:%s and not %s", e.want.Algorithm, e.got, e.want)
}

// from goes on with the layer from one endpoint.
func (d *download) from(ctx context.Context, s *session, moved func()) error {
	part := d.path + partSuffix
	if d.sum == nil {
		if err := d.reread(ctx, part); err != nil {
			return err
		}
	}
	d.mixed = d.have > 0
	if d.have < d.layer.Size || d.layer.Size == 0 {
		if err := d.more(ctx, s, part, moved); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); got != d.layer.Digest.Hex {
		mismatch := error(&mismatchError{want: d.layer.Digest, got: got})
		if !d.mixed {
			mismatch = permanent(mismatch)
		}
		if err := d.drop(part); err != nil {
			return err
		}
		return mismatch
	}
	if err := d.store.Host.Rename(part, d.path); err != nil {
		return &localError{err}
	}
	return nil
}

// reread finds out what is there from an earlier try, or from before a restart.
func (d *download) reread(ctx context.Context, part string) error {
	sum, n, err := d.store.sum(ctx, part, d.layer.Digest.Algorithm)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		sum, err = v1.Hasher(d.layer.Digest.Algorithm)
		n = 0
	case err == nil && n > d.layer.Size:
		return d.drop(part)
	}
	if err != nil {
		return &localError{err}
	}
	d.have, d.sum = n, sum
	d.count()
	return nil
}

// drop begins anew.
func (d *download) drop(part string) error {
	if err := d.store.Host.Remove(part); err != nil {
		return &localError{err}
	}
	d.have = 0
	d.sum, _ = v1.Hasher(d.layer.Digest.Algorithm)
	d.count()
	return nil
}

// more adds to the part what the endpoint sends.
func (d *download) more(ctx context.Context, s *session, part string, moved func()) error {
	body, err := s.blob(ctx, d.layer, d.have)
	if err != nil {
		return err
	}
	defer body.Close()
	source := &bodyReader{inner: io.LimitReader(body, d.layer.Size-d.have), got: func(p []byte) {
		d.sum.Write(p)
		d.have += int64(len(p))
		d.count()
		moved()
	}}
	before := d.have
	written, err := d.store.Host.AppendStream(part, source)
	if before+written != d.have || err != nil && source.err == nil {
		d.sum = nil // what is on the disk is not what was counted
	}
	switch {
	case source.err != nil:
		return noEOF(source.err)
	case err != nil:
		return &localError{fmt.Errorf("keeping it: %w", err)}
	case d.sum == nil:
		return &localError{errors.New("keeping it: less was written than was given")}
	case d.have < d.layer.Size:
		return fmt.Errorf("it ended after %d of %d bytes", d.have, d.layer.Size)
	}
	return nil
}

// count tells progress what is there.
func (d *download) count() {
	d.progress.add(d.have - d.counted)
	d.counted = d.have
}

// bodyReader tells what came through it, and remembers why it ended.
type bodyReader struct {
	inner io.Reader
	got   func([]byte)
	err   error
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if n > 0 {
		r.got(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// contextReader ends with its context.
type contextReader struct {
	ctx   context.Context
	inner io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.inner.Read(p)
}
