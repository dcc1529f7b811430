// Package feed keeps a release.Catalog up to date with release data from a file or a URL. It reads and fetches; what the data means is
// for hub/plan/release to say.
package feed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/hub/plan/release"
)

const (
	// DefaultRefresh is how often release data is fetched.
	DefaultRefresh = 6 * time.Hour
	// maxBytes is far above what is published today, which is some 10 MiB.
	maxBytes = 64 << 20
	// timeout is for one fetch.
	timeout = time.Minute
	// firstRetry is the pause after a fetch that failed; it doubles up to the time between two refreshes, or up to awaitedRetry while there
	// was none that succeeded: clusters may wait for it.
	firstRetry   = 30 * time.Second
	awaitedRetry = 5 * time.Minute
)

// Feed brings release data to a catalog. It is a Runnable of controller-runtime.
type Feed struct {
	// Location is a path, or an http or https URL.
	Location string
	// CacheFile keeps what was fetched last, so that a hub that starts while the URL cannot be reached renders what it rendered before.
	// Empty keeps nothing.
	CacheFile string
	// Refresh is the time between two fetches; DefaultRefresh where it is 0.
	Refresh time.Duration
	Catalog *release.Catalog
	Logger  *slog.Logger
	// Client is http.DefaultClient where it is unset.
	Client *http.Client

	etag string
	sum  [sha256.Size]byte
}

// Check says what is wrong with a location.
func Check(location string) error {
	if !remote(location) {
		if scheme, _, found := strings.Cut(location, "://"); found {
			return fmt.Errorf("%s:// is not supported; give a path, or a URL that begins with https:// or http://", scheme)
		}
		return nil
	}
	u, err := url.Parse(location)
	if err != nil || u.Host == "" {
		// What is wrong with it would quote it, and a URL may hold a password.
		return errors.New("it is not a URL; one looks like https://example.com/data.json")
	}
	return nil
}

func remote(location string) bool {
	return strings.HasPrefix(location, "http://") || strings.HasPrefix(location, "https://")
}

// Read returns the release data at a location. Unlike Load it fails where a URL cannot be fetched.
func Read(ctx context.Context, location string) (*release.Catalog, error) {
	if err := Check(location); err != nil {
		return nil, err
	}
	f := &Feed{Location: location, Catalog: &release.Catalog{}, Logger: slog.New(slog.DiscardHandler)}
	if remote(location) {
		return f.Catalog, f.fetch(ctx)
	}
	return f.Catalog, f.read()
}

// NeedLeaderElection is false: each replica of the hub renders.
func (f *Feed) NeedLeaderElection() bool { return false }

// Load gives the catalog its first data, before anything is rendered: the file's, or what was fetched last. Without that it fetches, and a
// hub that cannot reach the URL starts with what it was built with; the catalog says that other data is awaited. What was fetched before
// the location became a file is removed: it is not what the hub renders with.
func (f *Feed) Load(ctx context.Context) error {
	if !remote(f.Location) {
		if f.CacheFile != "" {
			if err := os.Remove(f.CacheFile); err != nil && !errors.Is(err, os.ErrNotExist) {
				f.Logger.Warn("Release data of an earlier start cannot be removed", "file", f.CacheFile, "error", err)
			}
		}
		return f.read()
	}
	if f.CacheFile != "" {
		raw, err := os.ReadFile(f.CacheFile)
		if err == nil {
			if err = f.publish(raw); err == nil {
				return nil
			}
		}
		if !errors.Is(err, os.ErrNotExist) {
			f.Logger.Warn("The release data kept from the last fetch cannot be used", "file", f.CacheFile, "error", err)
		}
	}
	if err := f.fetch(ctx); err != nil {
		f.Catalog.Await()
		f.Logger.Error("Release data cannot be fetched; until it can, releases are judged by what this hub was built with, and clusters for "+
			"which that is not enough wait", "error", err)
	}
	return nil
}

// Start refreshes until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	if !remote(f.Location) {
		return f.watch(ctx)
	}
	refresh := f.Refresh
	if refresh == 0 {
		refresh = DefaultRefresh
	}
	retry := firstRetry
	for {
		pause := refresh
		if err := f.fetch(ctx); err == nil {
			retry = firstRetry
		} else if ctx.Err() == nil {
			longest := refresh
			if f.Catalog.Awaited() {
				longest = min(refresh, awaitedRetry)
			}
			pause = min(retry, longest)
			retry = min(2*retry, longest)
			f.Logger.Warn("Release data cannot be fetched; what there is stays in use", "error", err, "retryAfter", pause.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// read takes the data from the file.
func (f *Feed) read() error {
	raw, err := os.ReadFile(f.Location)
	if err != nil {
		return fmt.Errorf("reading release data: %w", err)
	}
	if err := f.publish(raw); err != nil {
		return fmt.Errorf("%s: %w", f.Location, err)
	}
	return nil
}

// fetch takes the data from the URL, unless it is what it was.
func (f *Feed) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Location, nil)
	if err != nil {
		return errors.New("the location of the release data is not a URL")
	}
	if f.etag != "" {
		req.Header.Set("If-None-Match", f.etag)
	}
	client := f.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("fetching release data: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return nil
	case http.StatusOK:
	default:
		return fmt.Errorf("fetching release data: the server answers %s", resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return fmt.Errorf("fetching release data: %w", err)
	}
	if len(raw) > maxBytes {
		return fmt.Errorf("fetching release data: there are more than %d MiB of it", maxBytes>>20)
	}
	if err := f.publish(raw); err != nil {
		return err
	}
	f.etag = resp.Header.Get("ETag")
	if err := f.keep(raw); err != nil {
		f.Logger.Warn("The release data cannot be kept for the next start", "file", f.CacheFile, "error", err)
	}
	return nil
}

// publish hands data to the catalog, unless it has it.
func (f *Feed) publish(raw []byte) error {
	sum := sha256.Sum256(raw)
	if sum == f.sum {
		return nil
	}
	data, err := release.ParsePublished(raw)
	if err != nil {
		return err
	}
	f.sum = sum
	f.Catalog.Publish(data)
	f.Logger.Info("Release data is in use", "releases", data.Len())
	return nil
}

// keep writes the cache file whole or not at all.
func (f *Feed) keep(raw []byte) error {
	if f.CacheFile == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.CacheFile), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.CacheFile), filepath.Base(f.CacheFile)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(raw)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), f.CacheFile)
}
