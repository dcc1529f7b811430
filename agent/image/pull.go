package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/drover-dev/drover/agent/host"
)

// pull is one image on its way from registries into the store.
type pull struct {
	store    *Store
	cache    *cache
	ref      name.Reference
	wires    *wires
	progress *progress

	mu    sync.Mutex
	order []*session

	// record is what the image turned out to be.
	record  record
	release []func()
}

// newPull finds out where the image may come from; it asks nobody yet.
func (s *Store) newPull(ref name.Reference, progress *progress) (*pull, error) {
	registries, err := s.registries()
	if err != nil {
		return nil, err
	}
	credentials, err := s.credentials(registries)
	if err != nil {
		return nil, err
	}
	p := &pull{store: s, cache: s.cache, ref: ref, progress: progress, record: record{Image: ref.Name()}}
	p.wires = &wires{registries: registries, readFile: s.Host.ReadFile, stall: s.StallTimeout, proxy: s.Proxy}
	for _, e := range registries.endpoints(ref.Context()) {
		repo, err := e.repo()
		if err != nil {
			return nil, err
		}
		p.order = append(p.order, &session{endpoint: e, repo: repo, wire: &transport{endpoint: e, wires: p.wires}, credentials: credentials})
	}
	return p, nil
}

// close lets go of what the pull holds.
func (p *pull) close() {
	p.wires.close()
	for _, release := range p.release {
		release()
	}
}

// sessions are the endpoints, the one that served last first.
func (p *pull) sessions() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

func (p *pull) prefer(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order = slices.DeleteFunc(p.order, func(other *session) bool { return other == s })
	p.order = slices.Insert(p.order, 0, s)
}

func (p *pull) effort(what string) effort {
	return effort{patience: p.store.Patience, pause: p.store.pause, told: func(s *session, err error) {
		p.store.Log.Warn("An endpoint does not serve the image", "image", p.ref.Name(), "part", what, "endpoint", s.endpoint.url.Host,
			"retryable", transient(err), "error", err)
	}}
}

// layers finds out which layers the image has. All files of the store that it needs are pinned from here on.
func (p *pull) layers(ctx context.Context) ([]v1.Descriptor, error) {
	id := p.ref.Identifier()
	known, isKnown := p.cache.known(p.ref.Name())
	for range maxDepth {
		raw, said, err := p.manifest(ctx, id, isKnown)
		var failed *failure
		if _, byTag := p.ref.(name.Tag); byTag && isKnown && id == p.ref.Identifier() && errors.As(err, &failed) && !failed.hopeless() {
			p.store.Log.Warn("No registry can be reached, the image is taken as it was when it was last used", "image", p.ref.Name(), "error", err)
			id = known.String()
			raw, said, err = p.manifest(ctx, id, false)
		}
		if err != nil {
			return nil, err
		}
		document, err := decodeDocument(raw, said)
		if err != nil {
			return nil, err
		}
		if document.index != nil {
			described, err := pick(document.index, p.store.Platform)
			if err != nil {
				return nil, err
			}
			id = described.Digest.String()
			continue
		}
		layers, err := layersOf(document.image, p.store.Limits)
		if err != nil {
			return nil, err
		}
		var total int64
		for _, layer := range layers {
			p.need(fileName(layer.Digest))
			total += layer.Size
		}
		p.progress.expect(total)
		return layers, nil
	}
	return nil, fmt.Errorf("more than %d image indexes lead to each other", maxDepth)
}

// manifest gives a manifest by tag or digest. One that is asked for by digest is taken from the store if it is there.
func (p *pull) manifest(ctx context.Context, id string, once bool) (raw []byte, said types.MediaType, err error) {
	want, err := v1.NewHash(id)
	byDigest := err == nil
	if byDigest {
		if _, err := v1.Hasher(want.Algorithm); err != nil {
			return nil, "", fmt.Errorf("%s: digests of kind %q are not known", id, want.Algorithm)
		}
		p.need(fileName(want))
		p.record.Manifest = want
		if raw, err := p.store.Host.ReadFile(p.cache.path(fileName(want))); err == nil {
			if got, err := digestOf(raw, want.Algorithm); err == nil && got == want {
				return raw, "", nil
			}
		}
	}
	e := p.effort("manifest")
	if once {
		e.patience = 0
	}
	err = e.run(ctx, p.sessions(), func(s *session, _ func()) (err error) {
		if raw, said, err = s.manifest(ctx, id); err != nil {
			return err
		}
		if byDigest {
			if got, err := digestOf(raw, want.Algorithm); err != nil || got != want {
				return permanent(fmt.Errorf("the manifest has the digest %s and not %s", got, want))
			}
		}
		// A manifest that is none must not keep the next endpoint from serving one.
		if _, err := decodeDocument(raw, said); err != nil {
			return permanent(err)
		}
		p.prefer(s)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if !byDigest {
		if want, err = digestOf(raw, "sha256"); err != nil {
			return nil, "", err
		}
		p.need(fileName(want))
	}
	p.record.Manifest = want
	return raw, said, p.store.Host.WriteFile(p.cache.path(fileName(want)), raw, host.Private(0o600))
}

// need pins a file and notes that the image needs it.
func (p *pull) need(file string) {
	if !slices.Contains(p.record.Files, file) {
		p.record.Files = append(p.record.Files, file)
		p.release = append(p.release, p.cache.pin(file))
	}
}

// stage brings the image into the store, and from there into a folder.
func (p *pull) stage(ctx context.Context, dir string) error {
	timed, cancel := context.WithTimeoutCause(ctx, p.store.Timeout, fmt.Errorf("the image did not come within %s", p.store.Timeout))
	defer cancel()
	layers, err := p.layers(timed)
	if err != nil {
		return err
	}
	if err := p.fetchAll(timed, layers); err != nil {
		return err
	}
	p.record.Used = time.Now().UTC()
	p.cache.used(p.record)
	err = p.unpack(ctx, layers, dir)
	if errors.Is(err, syscall.ENOSPC) {
		p.store.Log.Warn("The disk is full, all images that are not in use are removed", "error", err)
		p.cache.collect(true)
		if err := p.store.clear(dir); err != nil {
			return err
		}
		err = p.unpack(ctx, layers, dir)
	}
	return err
}

func (p *pull) unpack(ctx context.Context, layers []v1.Descriptor, dir string) error {
	left := p.store.Limits.UnpackedBytes
	for _, layer := range layers {
		if err := p.store.unpackBlob(ctx, layer.Digest, dir, &left); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

// credentials gives a function that finds the credentials for a repository: those of registries.yaml, or else those of the kubelet's
// credential providers and of Docker's configuration.
func (s *Store) credentials(registries Registries) (func(context.Context, name.Repository) []authn.Authenticator, error) {
	providers, err := s.providers()
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
		all := s.plugins.lookup(ctx, providers, repo)
		if s.Keychain == nil {
			return all
		}
		found, err := authn.Resolve(ctx, s.Keychain, repo)
		if err != nil {
			s.Log.Warn("The credentials of Docker's configuration cannot be read", "registry", repo.RegistryStr(), "error", err)
		} else if found != authn.Anonymous {
			all = append(all, found)
		}
		return all
	}, nil
}
