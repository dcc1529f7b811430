// Package image unpacks OCI images into directories: from archives on the machine, or from registries and their mirrors. Every byte from a
// registry is checked against its digest before it is used. The package runs nothing but the credential providers that the machine's owner
// has configured, and starts no containers.
//
// registries.yaml is read by the package itself and not by github.com/rancher/wharfie, which reads it in the same way: that library returns
// a whole image from the first endpoint that has the manifest, so that layers can neither switch endpoints nor resume, and it links
// Kubernetes for the credential providers.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/retry"
)

const (
	// stallTimeout ends a transfer that has received nothing for so long.
	stallTimeout = time.Minute
	// patience is for how long a manifest or layer is retried without progress. It is longer than two stalls, so that a stalled transfer is
	// retried.
	patience = 3 * time.Minute
	// pullTimeout bounds the pull of a whole image.
	pullTimeout = 2 * time.Hour
	// baseDelay is the delay before the second round of requests; maxDelay bounds the later ones.
	baseDelay = time.Second
	maxDelay  = 30 * time.Second
	// collectInterval is how often the cache is collected while no image is staged.
	collectInterval = time.Hour
)

// Options of a Store. Host, Log and CacheDirectory are required.
type Options struct {
	// Host is the machine whose files are read and written, and on which credential providers run.
	Host host.Host
	// Log receives warnings about what is retried, skipped or repaired.
	Log *slog.Logger
	// CacheDirectory keeps layers and manifests. It is created when it is missing.
	CacheDirectory string
	// ImagesDirectory holds image archives, which are searched before any registry. It may be empty or missing.
	ImagesDirectory string
	// RegistriesFiles are paths of registries.yaml; the first one that exists is used. It is read again for each image.
	RegistriesFiles []string
	// CredentialProviderConfig is the path of the kubelet's CredentialProviderConfig, a file or a directory of them; it may be empty or
	// missing.
	CredentialProviderConfig string
	// CredentialProviderBinDirectory holds the programs that CredentialProviderConfig names; it may be empty or missing.
	CredentialProviderBinDirectory string
	// Environment is what those programs inherit, as NAME=value.
	Environment []string
	// Keychain is asked for credentials after registries.yaml and the credential providers; nil has none.
	Keychain authn.Keychain
	// CacheBytes is how much the cache may take; the default is 8 GiB.
	CacheBytes int64
}

// Store unpacks images and caches what it pulls. Its methods may be called concurrently.
type Store struct {
	Options
	cache       *cache
	downloading keyedMutex
	plugins     *pluginRunner
	// bufferCount numbers the files of buffered archive layers.
	bufferCount atomic.Int64

	// What follows is changed by tests only.
	platform                                       v1.Platform
	limits                                         limits
	stallTimeout, patience, pullTimeout, baseDelay time.Duration
	proxy                                          func(*http.Request) (*url.URL, error)
}

// New makes a Store. It reads and writes nothing yet.
func New(options Options) *Store {
	s := &Store{Options: options, platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, limits: defaultLimits,
		stallTimeout: stallTimeout, patience: patience, pullTimeout: pullTimeout, baseDelay: baseDelay, proxy: http.ProxyFromEnvironment}
	kept := defaultRetention
	kept.bytes = cmp.Or(options.CacheBytes, kept.bytes)
	s.cache = &cache{options: &s.Options, retention: kept, pinned: map[string]int{}}
	s.plugins = &pluginRunner{options: &s.Options, cached: map[string]cachedCredentials{}}
	return s
}

// Stage unpacks an image into an empty directory. onProgress, which may be nil, is called with the number of bytes that are there and of
// those that are needed, as they are stored or sent. The error names every place that was asked and its answer; when ctx is done, it is the
// cause of ctx.
func (s *Store) Stage(ctx context.Context, image, dir string, onProgress func(done, total int64)) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	progress := newProgress(onProgress)
	notFound := ""
	if s.ImagesDirectory != "" {
		if notFound, err = s.stageFromArchives(ctx, ref, dir, progress); err != nil || notFound == "" {
			return err
		}
	}
	p, err := s.newPull(ref, progress)
	if err != nil {
		return err
	}
	err = p.stage(ctx, dir)
	s.release(p, dir, err)
	switch {
	case err == nil:
		progress.finish()
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case notFound != "":
		return fmt.Errorf("%w; %s", err, notFound)
	}
	return err
}

// release ends a pull and removes what is not to be kept. One that has failed with err on a full disk leaves nothing there: the agent's
// journal, etcd and the kubelet may be on the same disk, and a download costs time only.
func (s *Store) release(p *pull, dir string, err error) {
	p.close()
	full := errors.Is(err, syscall.ENOSPC)
	if full {
		if err := s.emptyDirectory(dir); err != nil {
			s.Log.Warn("Removing a partly unpacked image failed", "directory", dir, "error", err)
		}
	}
	s.cache.collect(full)
}

// Run removes what has become too old from the cache until ctx is done. Stage does so, too, but most machines need no image for months. It
// does not begin at once: another agent may use the cache, in which case this one will not run for long.
func (s *Store) Run(ctx context.Context) {
	for retry.Sleep(ctx, collectInterval) == nil {
		s.cache.collect(false)
	}
}

// registries reads the first registries.yaml that exists.
func (s *Store) registries() (Registries, error) {
	for _, path := range s.RegistriesFiles {
		raw, err := s.Host.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Registries{}, err
		}
		registries, err := DecodeRegistries(raw)
		if err != nil {
			return Registries{}, fmt.Errorf("%s: %w", path, err)
		}
		if err := registries.Validate(); err != nil {
			s.Log.Warn("Ignoring invalid entries of the registries file", "file", path, "error", err)
		}
		for host, config := range registries.Configs {
			if config.TLS != nil && config.TLS.InsecureSkipVerify {
				s.Log.Warn("The certificate of a registry is not verified: insecure_skip_verify is set", "file", path, "registry", host)
			}
		}
		return registries, nil
	}
	return Registries{}, nil
}

// keyedMutex is a mutex for each key. Keys are never removed: they are digests, of which a machine sees a few dozen.
type keyedMutex struct{ byKey sync.Map }

// lock waits until the key is free, or ctx is done.
func (m *keyedMutex) lock(ctx context.Context, key string) (unlock func(), err error) {
	value, _ := m.byKey.LoadOrStore(key, make(chan struct{}, 1))
	held := value.(chan struct{})
	select {
	case held <- struct{}{}:
		return func() { <-held }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
