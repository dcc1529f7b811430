package feed

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/plan/release"
)

const (
	first  = `{"k3s": {"releases": [{"version": "v1.36.1+k3s1", "serverArgs": {"one": {"type": "string"}}}]}}`
	second = `{"k3s": {"releases": [{"version": "v1.36.1+k3s1", "serverArgs": {"two": {"type": "string"}}}]}}`
)

func knows(t *testing.T, c *release.Catalog, arg string) bool {
	t.Helper()
	r, err := c.Lookup("v1.36.1+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	_, ok := r.Arg(arg, true)
	return ok
}

func newFeed(t *testing.T, location string) (*Feed, *strings.Builder) {
	var log strings.Builder
	return &Feed{Location: location, Catalog: &release.Catalog{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestFile: a file is read at once and again when it changes; a file with errors changes nothing.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	f, _ := newFeed(t, path)
	if err := f.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "reading release data") {
		t.Errorf("a missing file: %v", err)
	}
	write(t, path, "{}")
	if err := f.Load(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file without data: %v", err)
	}
	write(t, path, first)
	if err := f.Load(t.Context()); err != nil || !knows(t, f.Catalog, "one") {
		t.Fatalf("not loaded: %v", err)
	}

	changed := make(chan struct{}, 8)
	f.Catalog.OnChange(func() { changed <- struct{}{} })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	write(t, path, second)
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
	}
	if !knows(t, f.Catalog, "two") {
		t.Error("a change of the file is not in use")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFileChangedBeforeWatch: a file that changes between Load and Start is read again, too.
func TestFileChangedBeforeWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.json")
	f, _ := newFeed(t, path)
	write(t, path, first)
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, path, second)
	changed := make(chan struct{}, 1)
	f.Catalog.OnChange(func() { changed <- struct{}{} })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Start(ctx) }()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
	}
	if !knows(t, f.Catalog, "two") {
		t.Error("the change is not in use")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWithoutWatch: where the folder cannot be watched, the file is read regularly, and the hub does not end.
func TestWithoutWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later", "data.json")
	synctest.Test(t, func(t *testing.T) {
		f, log := newFeed(t, path)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Start(ctx) }()
		time.Sleep(pollInterval / 2)
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, first)
		time.Sleep(pollInterval)
		stop()
		if err := <-done; err != nil || !knows(t, f.Catalog, "one") {
			t.Errorf("%v; log:\n%s", err, log)
		}
	})
}

// TestURL: data from a URL is kept, so that a hub that starts while the URL is unreachable has it.
func TestURL(t *testing.T) {
	var requests, unchanged atomic.Int32
	content := first
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("If-None-Match") == `"1"` {
			unchanged.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"1"`)
		_, _ = w.Write([]byte(content))
	}))
	cache := filepath.Join(t.TempDir(), "deep", "release-data.json")
	f, _ := newFeed(t, server.URL)
	f.CacheFile = cache
	if err := f.Load(t.Context()); err != nil || !knows(t, f.Catalog, "one") {
		t.Fatalf("not fetched: %v", err)
	}
	if err := f.fetch(t.Context()); err != nil || unchanged.Load() != 1 {
		t.Errorf("unchanged data was fetched again: %v", err)
	}
	server.Close()

	again, log := newFeed(t, server.URL)
	again.CacheFile = cache
	if err := again.Load(t.Context()); err != nil || !knows(t, again.Catalog, "one") {
		t.Errorf("what was kept is not in use: %v", err)
	}
	if err := again.fetch(t.Context()); err == nil || !knows(t, again.Catalog, "one") {
		t.Errorf("a failed fetch took away what there was: %v\n%s", err, log)
	}
}

// TestURLUnreachable: the hub starts without data, too.
func TestURLUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	f, log := newFeed(t, server.URL)
	f.CacheFile = filepath.Join(t.TempDir(), "release-data.json")
	write(t, f.CacheFile, "damaged")
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !f.Catalog.Awaited() {
		t.Error("nobody can know that data is missing")
	}
	for _, want := range []string{"404", "cannot be used", "built with"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
}

// TestRead: a command that needs the data gets an error where the hub would go on without.
func TestRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/data.json" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(first))
	}))
	defer server.Close()
	if catalog, err := Read(t.Context(), server.URL+"/data.json"); err != nil || !knows(t, catalog, "one") {
		t.Errorf("not read: %v", err)
	}
	for location, want := range map[string]string{
		server.URL + "/missing":                    "404",
		filepath.Join(t.TempDir(), "missing.json"): "no such file",
		"ftp://example.com/data.json":              "is not supported",
	} {
		if _, err := Read(t.Context(), location); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", location, err, want)
		}
	}
}

// TestFileAfterURL: a command finds no data that a hub with a file once fetched, since it does not render with them.
func TestFileAfterURL(t *testing.T) {
	dir := t.TempDir()
	file, cache := filepath.Join(dir, "data.json"), filepath.Join(dir, "release-data.json")
	write(t, file, first)
	write(t, cache, first)
	f, _ := newFeed(t, file)
	f.CacheFile = cache
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cache); !os.IsNotExist(err) {
		t.Errorf("what was fetched is still there: %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRetries: the pause after a failed fetch doubles up to the time between two refreshes, and stays there. It is shorter while clusters
// may wait for the first data.
func TestRetries(t *testing.T) {
	testRetries(t, func(*release.Catalog) {}, 6*time.Hour)
	testRetries(t, (*release.Catalog).Await, awaitedRetry)
}

func testRetries(t *testing.T, prepare func(*release.Catalog), longest time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const refresh, attempts = 6 * time.Hour, 80
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var times []time.Time
		f, _ := newFeed(t, "https://example.com/data.json")
		f.Refresh = refresh
		prepare(f.Catalog)
		f.Client = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			if times = append(times, time.Now()); len(times) == attempts {
				stop()
			}
			return nil, errors.New("no route to host")
		})}
		if err := f.Start(ctx); err != nil {
			t.Fatal(err)
		}
		want := firstRetry
		for i := range attempts - 1 {
			if pause := times[i+1].Sub(times[i]); pause != want {
				t.Fatalf("pause after failure %d: got %s, want %s", i+1, pause, want)
			}
			want = min(2*want, longest)
		}
	})
}

func TestTooLarge(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxBytes>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	f, _ := newFeed(t, server.URL)
	if err := f.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestCheck(t *testing.T) {
	for location, want := range map[string]string{
		"/etc/data.json":           "",
		"data.json":                "",
		"https://example.com/data": "",
		"ftp://example.com/data":   "ftp:// is not supported; give a path, or a URL that begins with https:// or http://",
		"https://":                 "it is not a URL; one looks like https://example.com/data.json",
		"https://u:p%zz@h/":        "it is not a URL; one looks like https://example.com/data.json",
	} {
		var got string
		if err := Check(location); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", location, got, want)
		}
	}
}
