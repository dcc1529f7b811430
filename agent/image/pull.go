package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/agent/host/fs"
)

// pull brings one image from registries into the cache.
type pull struct {
	store      *Store
	cache      *cache
	ref        name.Reference
	transports *transports
	progress   *progress

	mu sync.Mutex
	// ordered are the clients, the one that served last first.
	ordered []*client

	// result is what is known of the image by now; its files are pinned.
	result cachedImage
	unpin  []func()
}

// newPull determines where the image may come from; it sends no request yet.
func (s *Store) newPull(ref name.Reference, progress *progress) (*pull, error) {
	registries, err := s.registries()
	if err != nil {
		return nil, err
	}
	credentials, err := s.credentials(registries)
	if err != nil {
		return nil, err
	}
	p := &pull{store: s, cache: s.cache, ref: ref, progress: progress, result: cachedImage{Image: ref.Name()}}
	p.transports = &transports{registries: registries, readFile: s.Host.ReadFile, stall: s.stallTimeout, proxy: s.proxy}
	for _, e := range registries.endpoints(ref.Context()) {
		repo, err := e.repo()
		if err != nil {
			return nil, err
		}
		p.ordered = append(p.ordered, &client{endpoint: e, repo: repo, transport: &transport{endpoint: e, transports: p.transports},
			credentials: credentials, refused: s.plugins.forget})
	}
	return p, nil
}

func (p *pull) close() {
	p.transports.close()
	for _, unpin := range p.unpin {
		unpin()
	}
}

func (p *pull) clients() []*client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ordered)
}

// prefer lets the layers be requested first from the endpoint that served the manifest.
func (p *pull) prefer(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ordered = slices.DeleteFunc(p.ordered, func(other *client) bool { return other == c })
	p.ordered = slices.Insert(p.ordered, 0, c)
}

// retrier gets a part of the image: "manifest" or the digest of a layer.
func (p *pull) retrier(part string) retrier {
	return retrier{patience: p.store.patience, baseDelay: p.store.baseDelay, onError: func(c *client, err error) {
		p.store.Log.Warn("Request to image endpoint failed", "image", p.ref.Name(), "part", part, "endpoint", c.endpoint.url.Host,
			"retryable", retryable(err), "error", err)
	}}
}

// layers returns the layers of the image. All files of the cache that the image needs are pinned from here on.
func (p *pull) layers(ctx context.Context) ([]v1.Descriptor, error) {
	layers, err := resolveLayers(p.ref.Identifier(), p.store.platform, p.store.limits, func(id string) (manifest, error) {
		return p.manifestOrLast(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	var total int64
	for _, layer := range layers {
		p.need(blobName(layer.Digest))
		total += layer.Size
	}
	p.progress.start(total)
	return layers, nil
}

// manifestOrLast returns a manifest by tag or digest. If the image's tag was used before, registries are asked once each, and if none can
// be reached the tag stands for what it stood for then. A registry that answers, for example that it has no such tag, is believed.
func (p *pull) manifestOrLast(ctx context.Context, id string) (manifest, error) {
	_, byTag := p.ref.(name.Tag)
	last, found := p.cache.lastManifest(p.ref.Name())
	if !byTag || !found || id != p.ref.Identifier() {
		return p.manifest(ctx, id, p.store.patience)
	}
	m, err := p.manifest(ctx, id, 0)
	var failed *endpointsError
	if errors.As(err, &failed) && !slices.ContainsFunc(failed.errs, func(err error) bool { return !retryable(err) }) {
		p.store.Log.Warn("No registry is reachable, using the image that the tag last referred to", "image", p.ref.Name(), "error", err)
		return p.manifest(ctx, last.String(), p.store.patience)
	}
	return m, err
}

// manifest returns a manifest by tag or digest, from the cache if it is there by its digest.
func (p *pull) manifest(ctx context.Context, id string, patience time.Duration) (manifest, error) {
	digest, err := v1.NewHash(id)
	byDigest := err == nil
	if byDigest {
		p.resolved(digest)
		if m, err := p.cachedManifest(digest); err == nil {
			return m, nil
		}
	}
	var raw []byte
	var m manifest
	r := p.retrier("manifest")
	r.patience = patience
	err = r.run(ctx, p.clients(), func(ctx context.Context, c *client, _ func()) error {
		var contentType types.MediaType
		var err error
		if raw, contentType, err = c.manifest(ctx, id); err != nil {
			return err
		}
		// What is not a manifest, or is for other machines, must not keep the next endpoint from serving one.
		m, err = decodeManifest(raw, contentType)
		switch {
		case err == nil && byDigest:
			err = verifyDigest(raw, digest)
		case err == nil:
			if digest, _, err = v1.SHA256(bytes.NewReader(raw)); err == nil {
				err = p.checkPlatform(ctx, c, digest, m)
			}
		}
		if err != nil {
			return &permanentError{err}
		}
		p.prefer(c)
		return nil
	})
	if err != nil {
		return manifest{}, err
	}
	p.resolved(digest)
	return m, p.withSpace(func() error {
		return p.store.Host.WriteFile(p.cache.path(blobName(digest)), raw, fs.WithMode(0o600))
	})
}

// checkPlatform returns an error if the configuration of the image of a tag is for another platform. A manifest that is in the cache was
// checked when it was received. A configuration that cannot be read is no reason to fail: only the layers are needed.
func (p *pull) checkPlatform(ctx context.Context, c *client, digest v1.Hash, m manifest) error {
	if m.image == nil || m.image.Config.Digest == (v1.Hash{}) {
		return nil
	}
	if _, err := p.cachedManifest(digest); err == nil {
		return nil
	}
	config, err := c.config(ctx, m.image.Config)
	if err != nil {
		p.store.Log.Warn("Reading the configuration of the image failed, its platform is not checked", "image", p.ref.Name(),
			"endpoint", c.endpoint.url.Host, "error", err)
		return nil
	}
	return checkPlatform(config, p.store.platform)
}

func (p *pull) cachedManifest(digest v1.Hash) (manifest, error) {
	raw, err := p.store.Host.ReadFile(p.cache.path(blobName(digest)))
	if err == nil {
		err = verifyDigest(raw, digest)
	}
	if err != nil {
		return manifest{}, err
	}
	return decodeManifest(raw, "")
}

// resolved notes the digest of a manifest; the last one is that of the image.
func (p *pull) resolved(digest v1.Hash) {
	p.result.Manifest = digest
	p.need(blobName(digest))
}

// need pins a file and notes that the image needs it.
func (p *pull) need(file string) {
	if !slices.Contains(p.result.Files, file) {
		p.result.Files = append(p.result.Files, file)
		p.unpin = append(p.unpin, p.cache.pin(file))
	}
}

// stage brings the image into the cache, and unpacks it from there.
func (p *pull) stage(ctx context.Context, dir string) error {
	timeout := p.store.pullTimeout
	timed, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("pulling the image timed out after %s", timeout))
	defer cancel()
	layers, err := p.layers(timed)
	if err != nil {
		return err
	}
	if err := p.downloadAll(timed, layers); err != nil {
		return err
	}
	p.result.Used = time.Now().UTC()
	p.cache.record(p.result)
	return p.withSpace(func() error {
		if err := p.store.emptyDirectory(dir); err != nil {
			return err
		}
		return p.unpack(ctx, layers, dir)
	})
}

// withSpace stores something, and once more after the cache was emptied if the disk is full.
func (p *pull) withSpace(store func() error) error {
	err := store()
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	p.store.Log.Warn("The disk is full, removing all cached images that are not in use", "error", err)
	p.cache.collect(true)
	return store()
}

// unpack unpacks layers that are in the cache.
func (p *pull) unpack(ctx context.Context, layers []v1.Descriptor, dir string) error {
	remaining := p.store.limits.unpackedBytes
	for _, layer := range layers {
		file, err := p.store.Host.Open(p.cache.path(blobName(layer.Digest)))
		if err != nil {
			return err
		}
		err = p.store.unpackLayer(ctx, file, dir, &remaining, io.Discard)
		file.Close()
		if err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

// credentials returns a function that finds the credentials for a repository, in the order in which to try them: those of registries.yaml,
// or else those of the credential providers and of the keychain.
func (s *Store) credentials(registries Registries) (func(context.Context, name.Repository) []authn.Authenticator, error) {
	providers, err := s.readProviders()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, repo name.Repository) []authn.Authenticator {
		if config, found := lookup(registries.Configs, repo.RegistryStr()); found && config.Auth != nil {
			return []authn.Authenticator{authn.FromConfig(authn.AuthConfig{
				Username: config.Auth.Username, Password: config.Auth.Password,
				Auth: config.Auth.Auth, IdentityToken: config.Auth.IdentityToken,
			})}
		}
		all := s.plugins.credentials(ctx, providers, repo)
		if s.Keychain == nil {
			return all
		}
		found, err := authn.Resolve(ctx, s.Keychain, repo)
		if err != nil {
			s.Log.Warn("Reading Docker's configuration for credentials failed", "registry", repo.RegistryStr(), "error", err)
		} else if found != authn.Anonymous {
			all = append(all, found)
		}
		return all
	}, nil
}
