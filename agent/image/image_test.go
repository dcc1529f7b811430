package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestStageByTagAndDigest(t *testing.T) {
	h := newRegistry(t, false)
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
	// The layers and the configuration are asked for once.
	blobs := 0
	for _, request := range h.asked() {
		if strings.Contains(request, "/blobs/") {
			blobs++
		}
	}
	if blobs != 3 {
		t.Errorf("fetched %d blobs", blobs)
	}
}

func TestStageOfAnIndexTakesThePlatform(t *testing.T) {
	h := newRegistry(t, false)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, map[string]string{"run.sh": "arm"}),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
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
		h := newRegistry(t, false)
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
		h := newRegistry(t, false)
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
		broken, good := newRegistry(t, false), newRegistry(t, false)
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
		h := newRegistry(t, false)
		s := newStore(t, "mirrors:\n  "+h.host()+":\n    endpoint: [\""+h.URL+"\"]\n")
		_, err := stage(t, s, h.host()+"/a/b:v1")
		if err == nil || strings.Count(err.Error(), "from "+h.host()+":") != 1 {
			t.Errorf("got %v", err)
		}
	})
}

func TestStageWithCredentialsAndCertificates(t *testing.T) {
	h := newRegistry(t, true)
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
		return fmt.Sprintf("mirrors:\n  docker.io:\n    endpoint: [%q]\nconfigs:\n  %q:\n    auth: {%s}\n    tls: {%s}\n", h.URL, h.host(), auth,
			tls)
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
	h := newRegistry(t, false)
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
	// The manifest is what it should be, and is kept for the next try.
	names, _ := s.Host.ReadDir(s.CacheDirectory)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(s.CacheDirectory, name))
		if name != indexName && (err != nil || name != fmt.Sprintf("sha256-%x", sha256.Sum256(content))) {
			t.Errorf("kept %s of %v, %v", name, names, err)
		}
	}
}

func TestDamagedCacheIsDropped(t *testing.T) {
	h := newRegistry(t, false)
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
	h := newRegistry(t, false)
	s := newStore(t, "")
	for i := range 5 {
		image := fmt.Sprintf("a/b:v%d", i)
		push(t, h, image, imageOf(t, map[string]string{"n": fmt.Sprint(i)}))
		if _, err := stage(t, s, h.host()+"/"+image); err != nil {
			t.Fatal(err)
		}
	}
	if names, _ := s.Host.ReadDir(s.CacheDirectory); len(names) != 2*defaultRetention.images+1 {
		t.Errorf("kept %v", names)
	}
}

func TestStageNamesWhatIsWrong(t *testing.T) {
	if _, err := stage(t, newStore(t, ""), "Not An Image"); err == nil || !strings.Contains(err.Error(),
		"could not parse reference: Not An Image") {
		t.Errorf("got %v", err)
	}
	s := newStore(t, "mirrors: 5")
	if _, err := stage(t, s, "a/b"); err == nil || !strings.HasPrefix(err.Error(), s.RegistriesFiles[1]+": decoding registries: ") {
		t.Errorf("got %v", err)
	}
}
