package image

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// big is the content of a layer that does not compress.
func big(t *testing.T) map[string]string {
	t.Helper()
	raw := make([]byte, 1<<20)
	if _, err := rand.Read(raw); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"big": string(raw)}
}

// blobs answers requests for blobs with ranges, as most registries do, and lets change look at each of them first.
func blobs(change func(w http.ResponseWriter, r *http.Request, content []byte) (done bool)) func(http.ResponseWriter, *http.Request,
	http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			next.ServeHTTP(w, r)
			return
		}
		whole := r.Clone(r.Context())
		whole.Header.Del("Range")
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, whole)
		if recorder.Code != http.StatusOK {
			w.WriteHeader(recorder.Code)
			return
		}
		// Configurations of images are JSON.
		if bytes.HasPrefix(recorder.Body.Bytes(), []byte("{")) || !change(w, r, recorder.Body.Bytes()) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(recorder.Body.Bytes()))
		}
	}
}

// cut sends the headers of a whole answer and a part of its body.
func cut(w http.ResponseWriter, content []byte, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	_, _ = w.Write(content[:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// rangesOf collects the Range headers of requests.
type rangesOf struct {
	mu   sync.Mutex
	list []string
}

func (r *rangesOf) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, request.Header.Get("Range"))
}

// TestPullGoesOnAfterACut shows that B14 cannot happen: a transfer that breaks off goes on where it was, and nothing is fetched twice.
func TestPullGoesOnAfterACut(t *testing.T) {
	h, files := newRegistry(t, false), big(t)
	push(t, h, "a/b:v1", imageOf(t, files))
	var ranges rangesOf
	var cuts atomic.Int32
	h.set(blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		ranges.add(r)
		if cuts.Add(1) == 1 {
			cut(w, content, 300<<10)
		}
		return false
	}))
	got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
	if err != nil || got["big"] != files["big"] {
		t.Fatal(err)
	}
	if len(ranges.list) != 2 || ranges.list[0] != "" || !strings.HasPrefix(ranges.list[1], fmt.Sprintf("bytes=%d-", 300<<10)) {
		t.Errorf("asked for %q", ranges.list)
	}
}

func TestPullGoesOnWhereRangesAreNotKnown(t *testing.T) {
	for title, refuse := range map[string]bool{"ignored": false, "refused": true} {
		t.Run(title, func(t *testing.T) {
			h, files := newRegistry(t, false), big(t)
			push(t, h, "a/b:v1", imageOf(t, files))
			var cuts atomic.Int32
			h.set(blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
				if cuts.Add(1) == 1 {
					cut(w, content, 300<<10)
				}
				if refuse && r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
					return true
				}
				r.Header.Del("Range")
				return false
			}))
			got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
			if err != nil || got["big"] != files["big"] {
				t.Fatal(err)
			}
		})
	}
}

// TestPullGoesOnAfterARestart shows that B14 cannot happen when the agent is restarted in the middle of a pull either.
func TestPullGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	h, files := newRegistry(t, false), big(t)
	push(t, h, "a/b:v1", imageOf(t, files))
	half := blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		if r.Header.Get("Range") != "" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return true
		}
		cut(w, content, 500<<10)
		return true
	})
	for title, damage := range map[string]bool{"whole": false, "damaged": true} {
		t.Run(title, func(t *testing.T) {
			s := newStore(t, "")
			s.patience = time.Second
			h.set(half)
			_, err := stage(t, s, h.host()+"/a/b:v1")
			if err == nil || !strings.Contains(err.Error(), "500 KiB of 1.0 MiB received: ") ||
				!strings.Contains(err.Error(), "from "+h.host()+": unexpected status code 503 Service Unavailable: away") {
				t.Fatalf("got %v", err)
			}
			parts, err := filepath.Glob(filepath.Join(s.CacheDirectory, "*"+partSuffix))
			if err != nil || len(parts) != 1 {
				t.Fatalf("got %v, %v", parts, err)
			}
			if damage {
				if err := os.WriteFile(parts[0], make([]byte, 500<<10), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var ranges rangesOf
			h.set(blobs(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				ranges.add(r)
				return false
			}))
			again := New(s.Options)
			again.baseDelay = time.Millisecond
			got, err := stage(t, again, h.host()+"/a/b:v1")
			if err != nil || got["big"] != files["big"] {
				t.Fatal(err)
			}
			if !strings.HasPrefix(ranges.list[0], fmt.Sprintf("bytes=%d-", 500<<10)) || damage != (len(ranges.list) == 2) {
				t.Errorf("asked for %q", ranges.list)
			}
			if left, _ := filepath.Glob(filepath.Join(s.CacheDirectory, "*"+partSuffix)); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestNextMirrorGoesOnWithALayer(t *testing.T) {
	first, second, files := newRegistry(t, false), newRegistry(t, false), big(t)
	image := imageOf(t, files)
	push(t, first, "a/b:v1", image)
	push(t, second, "a/b:v1", image)
	first.set(blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		if r.Header.Get("Range") != "" {
			http.Error(w, "gone", http.StatusNotFound)
			return true
		}
		cut(w, content, 400<<10)
		return true
	}))
	var ranges rangesOf
	second.set(blobs(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		ranges.add(r)
		return false
	}))
	s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+first.URL+"\", \""+second.URL+"\"]\n")
	got, err := stage(t, s, "a/b:v1")
	if err != nil || got["big"] != files["big"] {
		t.Fatal(err)
	}
	if len(ranges.list) != 1 || !strings.HasPrefix(ranges.list[0], fmt.Sprintf("bytes=%d-", 400<<10)) {
		t.Errorf("asked for %q", ranges.list)
	}
}

// TestFailureNamesEveryEndpoint shows that a pull that fails says what each place said, and nothing that only a request should hold.
func TestFailureNamesEveryEndpoint(t *testing.T) {
	broken, missing := newRegistry(t, false), newRegistry(t, false)
	broken.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		if r.URL.Path == "/v2/" {
			return
		}
		http.Redirect(w, r, "http://127.0.0.1:1/layer?signature=topsecret", http.StatusTemporaryRedirect)
	})
	s := newStore(t, "mirrors:\n  m.invalid:\n    endpoint: [\""+broken.URL+"\", \""+missing.URL+"\", \"https://"+missing.host()+"\"]\n")
	s.patience = 20 * time.Millisecond
	s.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	_, err := stage(t, s, "m.invalid/a/b:v1")
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		"from " + broken.host() + ": dial tcp 127.0.0.1:1", "from " + missing.host() + ": unexpected status code 404 Not Found",
		"from " + missing.host() + ": http: server gave HTTP response to HTTPS client", "from m.invalid: dial tcp: lookup m.invalid",
		"not found in any of the 0 archives in " + s.ImagesDirectory,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "topsecret") {
		t.Errorf("the error shows a signature: %v", err)
	}
}

// TestAnswersThatAreNoLayer shows that what a captive portal or a broken mirror sends does not spoil what is there.
func TestAnswersThatAreNoLayer(t *testing.T) {
	files := big(t)
	image := imageOf(t, files)
	good := newRegistry(t, false)
	push(t, good, "a/b:v1", image)
	tests := map[string]func(w http.ResponseWriter, content []byte){
		"got 7 bytes, want": func(w http.ResponseWriter, _ []byte) { _, _ = io.WriteString(w, "log in!") },
		"got HTML instead of a layer: is a proxy or a login page in between?": func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "<html>log in!</html>")
		},
		`got Content-Range "bytes 9-10/11", want one from byte 0 on`: func(w http.ResponseWriter, _ []byte) {
			w.Header().Set("Content-Range", "bytes 9-10/11")
			w.WriteHeader(http.StatusPartialContent)
		},
		"digest mismatch: got sha256:": func(w http.ResponseWriter, content []byte) {
			content[len(content)-1] ^= 1
			_, _ = w.Write(content)
		},
		"response ended after 10 of": func(w http.ResponseWriter, content []byte) {
			w.(http.Flusher).Flush()
			_, _ = w.Write(content[:10])
		},
	}
	for said, send := range tests {
		t.Run(said, func(t *testing.T) {
			bad := newRegistry(t, false)
			push(t, bad, "a/b:v1", image)
			bad.set(blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
				if r.Header.Get("Range") != "" {
					http.NotFound(w, r)
					return true
				}
				send(w, content)
				return true
			}))
			var log strings.Builder
			s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+bad.URL+"\", \""+good.URL+"\"]\n")
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			got, err := stage(t, s, "a/b:v1")
			if err != nil || got["big"] != files["big"] {
				t.Fatal(err)
			}
			if !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), said) {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

func TestLayersArePulledConcurrently(t *testing.T) {
	h := newRegistry(t, false)
	var layers []map[string]string
	for i := range 5 {
		layers = append(layers, map[string]string{fmt.Sprintf("f%d", i): strings.Repeat("x", i+1)})
	}
	push(t, h, "a/b:v1", imageOf(t, layers...))
	var now, most atomic.Int32
	all := make(chan struct{})
	h.set(blobs(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == maxConcurrent {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
		case <-time.After(30 * time.Second):
		}
		return false
	}))
	got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
	if err != nil || len(got) != 5 {
		t.Fatalf("got %d files, %v", len(got), err)
	}
	if most.Load() != maxConcurrent {
		t.Errorf("%d requests at once", most.Load())
	}
}

func TestProgress(t *testing.T) {
	h := newRegistry(t, false)
	image := imageOf(t, big(t), map[string]string{"x": "y"})
	push(t, h, "a/b:v1", image)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := manifest.Layers[0].Size + manifest.Layers[1].Size
	s := newStore(t, "")
	for _, title := range []string{"fetched", "from the store"} {
		var last, total int64
		err := s.Stage(t.Context(), h.host()+"/a/b:v1", t.TempDir(), func(done, all int64) {
			if done < last || done > all {
				t.Errorf("%s: %d after %d of %d", title, done, last, all)
			}
			last, total = done, all
		})
		if err != nil || last != want || total != want {
			t.Errorf("%s: told %d of %d, want %d; %v", title, last, total, want, err)
		}
	}
}

func TestNoRegistryButTheStore(t *testing.T) {
	h := newRegistry(t, false)
	image := twoLayers(t)
	push(t, h, "a/b:v1", image)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	for _, ref := range []string{":v1", "@" + digest.String()} {
		got, err := stage(t, s, h.host()+"/a/b"+ref)
		checkStaged(t, got, err)
	}
	h.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusBadGateway) })
	for _, ref := range []string{":v1", "@" + digest.String()} {
		got, err := stage(t, s, h.host()+"/a/b"+ref)
		checkStaged(t, got, err)
	}
	// That the registry has taken it away counts.
	h.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) { http.NotFound(w, r) })
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}

func TestTwoPullsOfOneImage(t *testing.T) {
	h := newRegistry(t, false)
	image := twoLayers(t)
	push(t, h, "a/b:v1", image)
	config, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	var all sync.WaitGroup
	for range 4 {
		dir := t.TempDir()
		all.Go(func() {
			if err := s.Stage(t.Context(), h.host()+"/a/b:v1", dir, nil); err != nil {
				t.Error(err)
			}
			if raw, err := os.ReadFile(filepath.Join(dir, "k3s")); err != nil || string(raw) != "v2" {
				t.Errorf("got %q, %v", raw, err)
			}
		})
	}
	all.Wait()
	fetched := 0
	for _, request := range h.asked() {
		if strings.Contains(request, "/blobs/") && !strings.HasSuffix(request, config.String()) {
			fetched++
		}
	}
	if fetched != 2 {
		t.Errorf("fetched %d layers", fetched)
	}
}
