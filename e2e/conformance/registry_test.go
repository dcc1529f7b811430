//go:build conformance

package conformance

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// store is a registry.
type store struct {
	*httptest.Server
	m        *machine
	registry http.Handler

	mu sync.Mutex
	// handle sees every request first and reports whether it has answered.
	handle func(http.ResponseWriter, *http.Request) bool
	paths  []string
}

// newStore starts a registry on plain HTTP, or with a certificate of an authority.
func newStore(m *machine, ca *authority) *store {
	s := &store{m: m, registry: registry.New(registry.Logger(quiet))}
	if ca != nil {
		s.Server = ca.serve(s, false)
	} else {
		s.Server = httptest.NewServer(s)
		m.t.Cleanup(func() {
			s.CloseClientConnections()
			s.Server.Close()
		})
	}
	return s
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.paths = append(s.paths, r.Method+" "+r.URL.Path)
	handle := s.handle
	s.mu.Unlock()
	if handle != nil && handle(w, r) {
		return
	}
	s.registry.ServeHTTP(w, r)
}

func (s *store) intercept(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handle = f
}

// fetched is how often something was read whose path holds a text.
func (s *store) fetched(part string) (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range s.paths {
		if strings.HasPrefix(path, "GET ") && strings.Contains(path, part) {
			count++
		}
	}
	return count
}

// host is what stands before the first slash of a reference.
func (s *store) host() string { _, host, _ := strings.Cut(s.URL, "://"); return host }

// push puts an image into the registry and gives its reference and its digest.
func (s *store) push(repository string, image v1.Image) (string, string) {
	ref, err := name.ParseReference(s.host()+"/"+repository, name.Insecure)
	if err != nil {
		s.m.Fatalf("%s", err)
	}
	if err := remote.Write(ref, image, remote.WithTransport(s.Client().Transport)); err != nil {
		s.m.Fatalf("pushing: %s", err)
	}
	digest, err := image.Digest()
	if err != nil {
		s.m.Fatalf("%s", err)
	}
	s.mu.Lock()
	s.paths = nil
	s.mu.Unlock()
	return ref.String(), digest.String()
}

// wantsPassword lets in nobody but user u with password p.
func wantsPassword(w http.ResponseWriter, r *http.Request) bool {
	if user, password, _ := r.BasicAuth(); user == "u" && password == "p" {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
	http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
	return true
}

// entry is one of a layer; a regular file where nothing else is said.
type entry struct {
	tar.Header
	text string
}

func script(name, text string) entry {
	return entry{tar.Header{Name: name, Mode: 0o755}, "#!/bin/sh\n" + text + "\n"}
}

// image makes an image of layers.
func (m *machine) image(layers ...[]entry) v1.Image {
	image := empty.Image
	for _, entries := range layers {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		for _, e := range entries {
			e.Size = int64(len(e.text))
			if err := w.WriteHeader(&e.Header); err != nil {
				m.Fatalf("%s", err)
			}
			_, _ = io.WriteString(w, e.text)
		}
		_ = w.Close()
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil })
		if err != nil {
			m.Fatalf("%s", err)
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			m.Fatalf("%s", err)
		}
	}
	return image
}

// installer is an image that says what it is.
func (m *machine) installer(says string) v1.Image {
	return m.image([]entry{script("run.sh", "echo "+says)})
}

// archive is what docker save makes of an image.
func (m *machine) archive(reference string, image v1.Image) []byte {
	tag, err := name.NewTag(reference)
	if err != nil {
		m.Fatalf("%s", err)
	}
	var out bytes.Buffer
	if err := tarball.Write(tag, image, &out); err != nil {
		m.Fatalf("%s", err)
	}
	return out.Bytes()
}

// of is an instruction that runs an image.
func of(reference string, with ...obj) obj {
	return both(append([]obj{{"name": "i", "image": reference, "saveOutput": true}}, with...)...)
}

// says runs an image and fails unless it prints a line.
func (m *machine) says(want, reference string) {
	if got := m.run(instructions(of(reference))).outputs("applied-output")["i"]; got != want+"\n" {
		m.Errorf("it said %q and should have said %q", got, want)
	}
}
