package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
)

// TestStall shows that B14 cannot happen: a transfer that stands still is retried, and in the end fails with the reason.
func TestStall(t *testing.T) {
	t.Parallel()
	h, files := newRegistry(t, false), big(t)
	push(t, h, "a/b:v1", imageOf(t, files))
	var stalls atomic.Int32
	stall := func(times int32) func(http.ResponseWriter, *http.Request, http.Handler) {
		stalls.Store(0)
		return blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
			if stalls.Add(1) > times {
				return false
			}
			if r.Header.Get("Range") == "" {
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = w.Write(content[:len(content)/2])
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			return true
		})
	}
	t.Run("retried", func(t *testing.T) {
		h.set(stall(1))
		s := newStore(t, "")
		s.stallTimeout = 500 * time.Millisecond
		got, err := stage(t, s, h.host()+"/a/b:v1")
		if err != nil || got["big"] != files["big"] || stalls.Load() < 2 {
			t.Errorf("after %d requests: %v", stalls.Load(), err)
		}
	})
	t.Run("for ever", func(t *testing.T) {
		h.set(stall(1 << 30))
		s := newStore(t, "")
		s.stallTimeout, s.patience = 300*time.Millisecond, 2*time.Second
		_, err := stage(t, s, h.host()+"/a/b:v1")
		if err == nil || stalls.Load() < 2 || !strings.Contains(err.Error(), "s without progress; from ") ||
			!strings.Contains(err.Error(), "timeout awaiting response headers") && !strings.Contains(err.Error(), "no data received for 300ms") {
			t.Errorf("after %d requests: %v", stalls.Load(), err)
		}
	})
	t.Run("until cancelled", func(t *testing.T) {
		h.set(stall(1 << 30))
		s := newStore(t, "")
		s.stallTimeout, s.patience = time.Hour, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		onProgress := func(done, _ int64) {
			if done > 0 {
				cancel()
			}
		}
		time.AfterFunc(time.Second, cancel)
		started := time.Now()
		err := s.Stage(ctx, h.host()+"/a/b:v1", t.TempDir(), onProgress)
		if !errors.Is(err, context.Canceled) || time.Since(started) > time.Minute {
			t.Errorf("after %s: %v", time.Since(started), err)
		}
	})
	t.Run("until the time of the pull is over", func(t *testing.T) {
		h.set(stall(1 << 30))
		s := newStore(t, "")
		s.stallTimeout, s.patience, s.pullTimeout = time.Hour, time.Hour, 200*time.Millisecond
		_, err := stage(t, s, h.host()+"/a/b:v1")
		if err == nil || !strings.Contains(err.Error(), "pulling the image timed out after 200ms") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	image := twoLayers(t)
	tests := map[string]struct {
		answer func(w http.ResponseWriter, n int32) bool
		err    string
		least  time.Duration
		asked  int32
	}{
		"overloaded for a while": {answer: func(w http.ResponseWriter, n int32) bool {
			if n < 4 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return n < 4
		}},
		"asked to wait": {least: time.Second, answer: func(w http.ResponseWriter, n int32) bool {
			if n == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
			return n == 1
		}},
		"asked to wait for too long": {err: "unexpected status code 429 Too Many Requests", asked: 1,
			answer: func(w http.ResponseWriter, _ int32) bool {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}},
		"not there": {err: "unexpected status code 404 Not Found: MANIFEST_UNKNOWN: no such thing", asked: 1,
			answer: func(w http.ResponseWriter, _ int32) bool {
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such\nthing"}]}`)
				return true
			}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			h := newRegistry(t, false)
			push(t, h, "a/b:v1", image)
			var count atomic.Int32
			h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/manifests/") && test.answer(w, count.Add(1)) {
					return
				}
				next.ServeHTTP(w, r)
			})
			started := time.Now()
			got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
			if test.err == "" {
				checkStaged(t, got, err)
				if time.Since(started) < test.least {
					t.Errorf("came back after %s", time.Since(started))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "from "+h.host()+": "+test.err) || count.Load() != test.asked {
				t.Errorf("asked %d times: %v", count.Load(), err)
			}
		})
	}
}

// fullHost is a machine whose disk is full until something is removed.
type fullHost struct {
	host.Host
	full atomic.Bool
}

func (h *fullHost) AppendStream(path string, content io.Reader) (int64, error) {
	if h.full.Load() {
		return 0, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	}
	return h.Host.AppendStream(path, content)
}

func (h *fullHost) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	if h.full.Load() {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o600), syscall.ENOSPC)
	}
	return h.Host.Unpack(ctx, dir, layer)
}

func (h *fullHost) Remove(path string) error {
	if !strings.HasSuffix(path, partSuffix) {
		h.full.Store(false)
	}
	return h.Host.Remove(path)
}

// fullForFiles is full for manifests, too.
type fullForFiles struct{ fullHost }

func (h *fullForFiles) WriteFile(path string, content []byte, attrs fs.Attributes) error {
	if h.full.Load() {
		return &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	}
	return h.Host.WriteFile(path, content, attrs)
}

func TestFullDiskForManifest(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	push(t, h, "a/old:v1", imageOf(t, map[string]string{"old": "x"}))
	s := newStore(t, "")
	full := &fullForFiles{fullHost{Host: host.Local{}}}
	s.Host = full
	if _, err := stage(t, s, h.host()+"/a/old:v1"); err != nil {
		t.Fatal(err)
	}
	full.full.Store(true)
	got, err := stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
	if full.full.Load() {
		t.Error("no manifest was written while the disk was full")
	}
}

func TestFullDisk(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	push(t, h, "a/old:v1", imageOf(t, map[string]string{"old": "x"}))
	s := newStore(t, "")
	full := &fullHost{Host: host.Local{}}
	s.Host = full
	full.full.Store(true)
	_, err := stage(t, s, h.host()+"/a/b:v1")
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "storing the layer: write") {
		t.Errorf("got %v", err)
	}
	full.full.Store(false)
	if _, err := stage(t, s, h.host()+"/a/old:v1"); err != nil {
		t.Fatal(err)
	}
	full.full.Store(true)
	got, err := stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
	// The same when all layers are there already.
	if _, err := stage(t, s, h.host()+"/a/old:v1"); err != nil {
		t.Fatal(err)
	}
	full.full.Store(true)
	got, err = stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
}

// TestRegistryAnswersBesideAMirrorThatIsDown shows that a tag stands for what it stood for only while no registry answers: one that does
// not have the image, or refuses, is believed though a mirror is down.
func TestRegistryAnswersBesideAMirrorThatIsDown(t *testing.T) {
	mirror, registry := newRegistry(t, false), newRegistry(t, false)
	push(t, registry, "a/b:v1", twoLayers(t))
	answer := func(code int) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(code) }
	}
	mirror.set(answer(http.StatusBadGateway))
	s := newStore(t, "mirrors:\n  "+registry.host()+":\n    endpoint: [\""+mirror.URL+"\"]\n")
	got, err := stage(t, s, registry.host()+"/a/b:v1")
	checkStaged(t, got, err)
	for code, want := range map[int]string{http.StatusBadGateway: "", http.StatusNotFound: "404", http.StatusUnauthorized: "401"} {
		registry.set(answer(code))
		got, err := stage(t, s, registry.host()+"/a/b:v1")
		if want == "" {
			checkStaged(t, got, err)
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: staged %d files, %v", code, len(got), err)
		}
	}
}
