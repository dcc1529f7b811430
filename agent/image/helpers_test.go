package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/agent/host"
)

// fakeRegistry is a registry in this process that records requests and may be told to misbehave.
type fakeRegistry struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	handle   func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newRegistry(t *testing.T, useTLS bool) *fakeRegistry {
	t.Helper()
	h := &fakeRegistry{}
	inner := registry.New(registry.Logger(quiet))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.requests = append(h.requests, r.Method+" "+r.URL.RequestURI())
		handle := h.handle
		h.mu.Unlock()
		if handle != nil {
			handle(w, r, inner)
			return
		}
		inner.ServeHTTP(w, r)
	})
	h.Server = httptest.NewUnstartedServer(handler)
	h.Config.ErrorLog = quiet
	if useTLS {
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(h.Close)
	return h
}

func (h *fakeRegistry) host() string {
	u, _ := url.Parse(h.URL)
	return u.Host
}

func (h *fakeRegistry) set(handle func(http.ResponseWriter, *http.Request, http.Handler)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handle = handle
}

// asked lists the requests since the last call.
func (h *fakeRegistry) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.requests
	h.requests = nil
	return asked
}

func layerOf(t *testing.T, files map[string]string) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for path, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: path, Size: int64(len(content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func imageOf(t *testing.T, layers ...map[string]string) v1.Image {
	t.Helper()
	image := empty.Image
	for _, files := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, layerOf(t, files)); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// imageFor makes an image whose configuration names a platform, of which it holds the architecture.
func imageFor(t *testing.T, platform v1.Platform) v1.Image {
	t.Helper()
	image := imageOf(t, map[string]string{"for": platform.Architecture})
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	if image, err = mutate.ConfigFile(image, config); err != nil {
		t.Fatal(err)
	}
	return image
}

func push(t *testing.T, h *fakeRegistry, repository string, image v1.Image) {
	t.Helper()
	ref, err := name.ParseReference(h.host() + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	options := []remote.Option{remote.WithTransport(h.Client().Transport)}
	if err := remote.Write(ref, image, options...); err != nil {
		t.Fatal(err)
	}
	h.asked()
}

// newStore makes a store on this machine, with a registries.yaml.
func newStore(t *testing.T, registries string) *Store {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "registries.yaml")
	if registries != "" {
		if err := os.WriteFile(path, []byte(registries), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := New(Options{
		Host: host.Local{}, Log: slog.New(slog.DiscardHandler), CacheDirectory: filepath.Join(dir, "cache"),
		ImagesDirectory: filepath.Join(dir, "images"), RegistriesFiles: []string{filepath.Join(dir, "none.yaml"), path},
	})
	s.platform = v1.Platform{OS: "linux", Architecture: "amd64"}
	s.stallTimeout, s.patience = 10*time.Second, 10*time.Second
	s.baseDelay = time.Millisecond
	return s
}

// pullOnly asks the first endpoint alone for an image.
func (s *Store) pullOnly(ctx context.Context, t *testing.T, image string) error {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.newPull(ref, newProgress(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.ordered = p.ordered[:1]
	return p.stage(ctx, t.TempDir())
}

func stage(t *testing.T, s *Store, image string) (map[string]string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := s.Stage(t.Context(), image, dir, nil); err != nil {
		return nil, err
	}
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		got[rel] = string(raw)
		return err
	})
	return got, err
}

var content = map[string]string{"run.sh": "#!/bin/sh\n", "k3s": "v2"}

func twoLayers(t *testing.T) v1.Image {
	return imageOf(t, map[string]string{"run.sh": "#!/bin/sh\n", "k3s": "v1", "old": "x"}, map[string]string{"k3s": "v2", ".wh.old": ""})
}

func checkStaged(t *testing.T, got map[string]string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content, got); diff != "" {
		t.Fatal(diff)
	}
}
