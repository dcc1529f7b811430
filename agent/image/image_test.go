package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// hub is a registry in this process that notes what is asked of it and may be told to misbehave.
type hub struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	handle   func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func newHub(t *testing.T, useTLS bool) *hub {
	t.Helper()
	h := &hub{}
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

func (h *hub) host() string {
	u, _ := url.Parse(h.URL)
	return u.Host
}

func (h *hub) set(handle func(http.ResponseWriter, *http.Request, http.Handler)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handle = handle
}

// asked lists what was asked since the last call.
func (h *hub) asked() []string {
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

func push(t *testing.T, h *hub, repository string, image v1.Image) {
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
		Host: host.Machine{}, Log: slog.New(slog.DiscardHandler), CacheDirectory: filepath.Join(dir, "cache"),
		ImagesDirectory: filepath.Join(dir, "images"), RegistriesFiles: []string{filepath.Join(dir, "none.yaml"), path},
		Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, StallTimeout: 10 * time.Second, Patience: 10 * time.Second,
	})
	s.pause = time.Millisecond
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
	p.order = p.order[:1]
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

func TestStageByTagAndDigest(t *testing.T) {
	h := newHub(t, false)
	image := twoLayers(t)
	push(t, h, "rancher/installer:v1", image)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	for _, ref := range []string{":v1", "@" + digest.String(), ":v1@" + digest.String()} {
		got, err := stage(t, s, h.host()+"/rancher/installer"+ref)
		checkStaged(t, got, err)
	}
	// The layers are asked for once.
	blobs := 0
	for _, request := range h.asked() {
		if strings.Contains(request, "/blobs/") {
			blobs++
		}
	}
	if blobs != 2 {
		t.Errorf("fetched %d layers", blobs)
	}
}

func TestStageOfAnIndexTakesThePlatform(t *testing.T) {
	h := newHub(t, false)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, map[string]string{"run.sh": "arm"}), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: twoLayers(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	ref, err := name.ParseReference(h.host() + "/a/b:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	got, err := stage(t, newStore(t, ""), ref.Name())
	checkStaged(t, got, err)
}

func TestStageThroughMirrors(t *testing.T) {
	image := twoLayers(t)
	t.Run("of docker.io, plain HTTP", func(t *testing.T) {
		h := newHub(t, false)
		push(t, h, "rancher/installer:v1", image)
		s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+h.URL+"\"]\n")
		got, err := stage(t, s, "rancher/installer:v1")
		checkStaged(t, got, err)
		for _, request := range h.asked() {
			if !strings.Contains(request, "ns=docker.io") {
				t.Errorf("%s does not name the registry", request)
			}
		}
	})
	t.Run("with a path and a rewrite", func(t *testing.T) {
		h := newHub(t, false)
		push(t, h, "mirror/rancher/installer:v1", image)
		h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			path, found := strings.CutPrefix(r.URL.Path, "/proxy/v2")
			if !found {
				http.NotFound(w, r)
				return
			}
			r.URL.Path = "/v2" + path
			next.ServeHTTP(w, r)
		})
		s := newStore(t, "mirrors:\n  '*':\n    endpoint: [\""+h.URL+"/proxy/v2/\"]\n    rewrite:\n      '^rancher/(.*)': 'mirror/rancher/$1'\n")
		got, err := stage(t, s, "registry.example.com/rancher/installer:v1")
		checkStaged(t, got, err)
	})
	t.Run("the next one serves when a layer fails", func(t *testing.T) {
		broken, good := newHub(t, false), newHub(t, false)
		push(t, broken, "a/b:v1", image)
		push(t, good, "a/b:v1", image)
		broken.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				http.Error(w, "gone", http.StatusNotFound)
				return
			}
			next.ServeHTTP(w, r)
		})
		s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+broken.URL+"\", \""+good.URL+"\"]\n")
		got, err := stage(t, s, "a/b:v1")
		checkStaged(t, got, err)
	})
	t.Run("all fail", func(t *testing.T) {
		h := newHub(t, false)
		s := newStore(t, "mirrors:\n  "+h.host()+":\n    endpoint: [\""+h.URL+"\"]\n")
		_, err := stage(t, s, h.host()+"/a/b:v1")
		if err == nil || strings.Count(err.Error(), "from "+h.host()+":") != 1 {
			t.Errorf("got %v", err)
		}
	})
}

func TestStageWithCredentialsAndCertificates(t *testing.T) {
	h := newHub(t, true)
	image := twoLayers(t)
	push(t, h, "a/b:v1", image)
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, password, _ := r.BasicAuth(); user != "drover" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(h.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	registries := func(auth, tls string) string {
		return fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q]\nconfigs:\n  %q:\n    auth: {%s}\n    tls: {%s}\n", h.URL, h.host(), auth, tls)
	}
	for name, test := range map[string]struct{ auth, tls, err string }{
		"password":       {auth: "username: drover, password: secret", tls: "ca_file: " + ca},
		"auth":           {auth: "auth: ZHJvdmVyOnNlY3JldA==", tls: "ca_file: " + ca},
		"not verified":   {auth: "username: drover, password: secret", tls: "insecure_skip_verify: true"},
		"wrong password": {auth: "username: drover, password: wrong", tls: "ca_file: " + ca, err: "401"},
		"no CA":          {auth: "username: drover, password: secret", err: "certificate signed by unknown authority"},
		"missing CA":     {auth: "username: drover, password: secret", tls: "ca_file: /no/such/ca", err: "certificates for " + h.host()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, registries(test.auth, test.tls))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			// The mirror alone: docker.io itself is not for tests.
			err := s.pullOnly(ctx, t, "a/b:v1")
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if err != nil && strings.Contains(err.Error(), "wrong") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestContentThatDoesNotMatchItsDigest(t *testing.T) {
	h := newHub(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		body[len(body)-1] ^= 1
		_, _ = w.Write(body)
	})
	s := newStore(t, "")
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil {
		t.Fatal("no error")
	}
	names, _ := s.Host.ReadDir(s.CacheDirectory)
	if slices.ContainsFunc(names, func(n string) bool { return n != indexName }) {
		t.Errorf("kept %v", names)
	}
}

func TestDamagedCacheIsDropped(t *testing.T) {
	h := newHub(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	s := newStore(t, "")
	got, err := stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
	names, err := s.Host.ReadDir(s.CacheDirectory)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "sha256-") {
			path := filepath.Join(s.CacheDirectory, name)
			raw, _ := os.ReadFile(path)
			raw[len(raw)-1] ^= 1
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err = stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
}

func TestCacheKeepsTheLastImages(t *testing.T) {
	h := newHub(t, false)
	s := newStore(t, "")
	for i := range 5 {
		image := fmt.Sprintf("a/b:v%d", i)
		push(t, h, image, imageOf(t, map[string]string{"n": fmt.Sprint(i)}))
		if _, err := stage(t, s, h.host()+"/"+image); err != nil {
			t.Fatal(err)
		}
	}
	if names, _ := s.Host.ReadDir(s.CacheDirectory); len(names) != 2*DefaultRetention.Images+1 {
		t.Errorf("kept %v", names)
	}
}

func TestStageNamesWhatIsWrong(t *testing.T) {
	if _, err := stage(t, newStore(t, ""), "Not An Image"); err == nil || !strings.Contains(err.Error(), "could not parse reference: Not An Image") {
		t.Errorf("got %v", err)
	}
	s := newStore(t, "mirrors: 5")
	if _, err := stage(t, s, "a/b"); err == nil || !strings.HasPrefix(err.Error(), s.RegistriesFiles[1]+": decoding registries: ") {
		t.Errorf("got %v", err)
	}
}
