package image

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
)

// maxConcurrent is how many layers of an image are downloaded at the same time, as containerd does.
const maxConcurrent = 3

// downloadAll brings all layers into the cache.
func (p *pull) downloadAll(ctx context.Context, layers []v1.Descriptor) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
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
			if err := p.download(ctx, layer); err != nil {
				return fmt.Errorf("layer %s: %w", layer.Digest, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// download brings one layer into the cache, unless it is there and matches its digest.
func (p *pull) download(ctx context.Context, layer v1.Descriptor) error {
	name := blobName(layer.Digest)
	unlock, err := p.store.downloading.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	cached, err := p.isCached(ctx, layer)
	if err != nil || cached {
		return err
	}
	d := &download{pull: p, layer: layer, path: p.cache.path(name), part: p.cache.path(name + partSuffix)}
	err = p.withSpace(func() error { return p.retrier(layer.Digest.String()).run(ctx, p.clients(), d.from) })
	var failed *endpointsError
	if errors.As(err, &failed) && d.received > 0 {
		return fmt.Errorf("%s of %s received: %w", humanBytes(d.received), humanBytes(layer.Size), err)
	}
	return err
}

// isCached reports whether a layer is in the cache. The disk is not trusted more than a registry: a damaged layer is removed.
func (p *pull) isCached(ctx context.Context, layer v1.Descriptor) (bool, error) {
	path := p.cache.path(blobName(layer.Digest))
	sum, size, err := p.store.hashFile(ctx, path, layer.Digest.Algorithm)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err == nil {
		err = verifySum(sum.Sum(nil), layer.Digest)
	}
	if err == nil {
		p.progress.add(size)
		return true, nil
	}
	p.store.Log.Warn("A cached layer is damaged, downloading it again", "layer", layer.Digest.String(), "error", err)
	return false, p.store.Host.Remove(path)
}

// hashFile reads a file and returns the state of its checksum and its size.
func (s *Store) hashFile(ctx context.Context, path, algorithm string) (hash.Hash, int64, error) {
	sum, err := v1.Hasher(algorithm)
	if err != nil {
		return nil, 0, err
	}
	file, err := s.Host.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	n, err := io.CopyBuffer(sum, &contextReader{ctx: ctx, Reader: file}, make([]byte, 256<<10))
	return sum, n, err
}

// download is one layer that is being downloaded. What was received is kept in a part, which any endpoint may resume, also after a restart.
type download struct {
	*pull
	layer v1.Descriptor
	// path is where the layer belongs, part where it is until it is complete.
	path, part string
	// received is the size of the part, and sum its checksum; while sum is nil the part must be read first.
	received int64
	sum      hash.Hash
}

// from resumes the layer from one endpoint.
func (d *download) from(ctx context.Context, c *client, onProgress func()) error {
	if d.sum == nil {
		if err := d.readPart(ctx); err != nil {
			return &localError{err}
		}
	}
	// An endpoint that sent all of the part itself will not send anything else next time.
	resumed := d.received > 0
	if d.received < d.layer.Size || d.layer.Size == 0 {
		if err := d.receive(ctx, c, onProgress); err != nil {
			return err
		}
	}
	if mismatch := verifySum(d.sum.Sum(nil), d.layer.Digest); mismatch != nil {
		if err := d.restart(); err != nil {
			return &localError{err}
		}
		if resumed {
			return mismatch
		}
		return &permanentError{mismatch}
	}
	if err := d.store.Host.Rename(d.part, d.path); err != nil {
		return &localError{err}
	}
	return nil
}

// readPart reads what an earlier try, or an earlier process, has received.
func (d *download) readPart(ctx context.Context) error {
	sum, size, err := d.store.hashFile(ctx, d.part, d.layer.Digest.Algorithm)
	if errors.Is(err, fs.ErrNotExist) || err == nil && size > d.layer.Size {
		return d.restart()
	}
	if err == nil {
		d.progress.add(size - d.received)
		d.received, d.sum = size, sum
	}
	return err
}

// restart removes the part.
func (d *download) restart() error {
	if err := d.store.Host.Remove(d.part); err != nil {
		return err
	}
	d.progress.add(-d.received)
	d.received = 0
	var err error
	d.sum, err = v1.Hasher(d.layer.Digest.Algorithm)
	return err
}

// receive appends to the part what the endpoint sends.
func (d *download) receive(ctx context.Context, c *client, onProgress func()) error {
	body, err := c.blob(ctx, d.layer, d.received)
	if err != nil {
		return err
	}
	defer body.Close()
	content := &callbackReader{Reader: io.LimitReader(body, d.layer.Size-d.received), onRead: func(p []byte) {
		d.sum.Write(p)
		d.received += int64(len(p))
		d.progress.add(int64(len(p)))
		onProgress()
	}}
	before := d.received
	written, err := d.store.Host.AppendStream(d.part, content)
	complete := before+written == d.received
	if !complete || err != nil && content.err == nil {
		d.sum = nil // the part on the disk is not what was counted
	}
	switch {
	case content.err != nil:
		return noEOF(content.err)
	case err != nil:
		return &localError{fmt.Errorf("storing the layer: %w", err)}
	case !complete:
		return &localError{fmt.Errorf("storing the layer: %w", io.ErrShortWrite)}
	case d.received < d.layer.Size:
		return fmt.Errorf("response ended after %d of %d bytes", d.received, d.layer.Size)
	}
	return nil
}
