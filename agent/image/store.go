// Package image brings the content of OCI images into a folder: from archives on the machine, or from registries and their mirrors.
// Every byte from a registry is checked against its digest before it is used. It runs nothing but the credential providers that the
// machine's owner has set up, and keeps no container's state.
//
// registries.yaml is read by the package itself and not by github.com/rancher/wharfie, which reads it in the same way: that library gives a
// whole image from the first endpoint with a manifest, so layers can neither change the endpoint nor go on where they broke off, and it
// links Kubernetes for the credential providers.
package image

import (
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
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
)

// Defaults of Options.
const (
	// DefaultStallTimeout ends a transfer of which nothing has come for so long.
	DefaultStallTimeout = time.Minute
	// DefaultPatience is longer than two stalls, so that a transfer that stands still is tried again.
	DefaultPatience = 3 * time.Minute
	DefaultTimeout  = 2 * time.Hour
	firstPause      = time.Second
)

// Options of a Store. Host, Log and CacheDirectory must be set.
type Options struct {
	Host host.Host
	Log  *slog.Logger
	// CacheDirectory keeps layers and manifests.
	CacheDirectory string
	// ImagesDirectory holds archives of images, looked at before any registry; it may be missing.
	ImagesDirectory string
	// RegistriesFiles are looked at in order; the first that exists counts.
	RegistriesFiles []string
	// CredentialProviderConfig is a kubelet's CredentialProviderConfig, a file or a folder of them, and CredentialProviderBinDirectory
	// holds the programs that it names. Either may be missing.
	CredentialProviderConfig       string
	CredentialProviderBinDirectory string
	// Environment is what those programs inherit, as NAME=value.
	Environment []string
	// Keychain gives credentials where nobody else does; nil gives none.
	Keychain authn.Keychain
	// Platform of images with more than one; the zero value is the machine's own.
	Platform v1.Platform
	// Limits bound one image, Retention bounds what is kept; zero values are the defaults.
	Limits    Limits
	Retention Retention
	// StallTimeout ends a transfer of which nothing comes, Patience the tries to get on with a layer or manifest, and Timeout the pull of
	// an image as a whole.
	StallTimeout, Patience, Timeout time.Duration
	// Proxy of a request; nil takes the one that the environment names.
	Proxy func(*http.Request) (*url.URL, error)
}

// Store stages images.
type Store struct {
	Options
	cache   *cache
	locks   locks
	plugins *plugins
	pause   time.Duration
	// asides numbers layers of archives that are put aside.
	asides atomic.Int64
}

// New makes a Store.
func New(options Options) *Store {
	if options.Platform.OS == "" {
		options.Platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	}
	if options.Limits == (Limits{}) {
		options.Limits = DefaultLimits
	}
	if options.Retention == (Retention{}) {
		options.Retention = DefaultRetention
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&options.StallTimeout, DefaultStallTimeout}, {&options.Patience, DefaultPatience}, {&options.Timeout, DefaultTimeout}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if options.Proxy == nil {
		options.Proxy = http.ProxyFromEnvironment
	}
	s := &Store{Options: options, pause: firstPause}
	s.cache = &cache{options: &s.Options, pinned: map[string]int{}}
	s.plugins = newPlugins(&s.Options)
	return s
}

// Stage unpacks an image into an empty folder. It tells progress, which may be nil, how many bytes of how many there are.
func (s *Store) Stage(ctx context.Context, image, dir string, progress func(done, total int64)) error {
	ref, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	report := newProgress(progress)
	found, looked, err := s.stageArchive(ctx, ref, dir, report)
	if found || err != nil {
		return err
	}
	p, err := s.newPull(ref, report)
	if err != nil {
		return err
	}
	defer s.cache.collect(false)
	defer p.close()
	if err := p.stage(ctx, dir); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if looked != "" {
			return fmt.Errorf("%w; %s", err, looked)
		}
		return err
	}
	report.end()
	return nil
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
			s.Log.Warn("What is wrong in the registries file is passed over", "file", path, "error", err)
		}
		for host, config := range registries.Configs {
			if config.TLS != nil && config.TLS.InsecureSkipVerify {
				s.Log.Warn("The certificate of a registry is not checked, so that only digests can be trusted", "file", path, "registry", host)
			}
		}
		return registries, nil
	}
	return Registries{}, nil
}

// locks lets one at a time work on a file of the store.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits until nobody else holds the name, or ctx is done.
func (l *locks) lock(ctx context.Context, name string) (release func(), err error) {
	for {
		l.mu.Lock()
		held, busy := l.held[name]
		if !busy {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			l.held[name] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, name)
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-held:
		}
	}
}
