package image

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPullGoesOnAfterAKill kills a process with SIGKILL in the middle of a layer; the next one goes on where the part ends (B14).
func TestPullGoesOnAfterAKill(t *testing.T) {
	if image := os.Getenv("TEST_KILL"); image != "" {
		s := newStore(t, "")
		s.CacheDirectory = os.Getenv("TEST_CACHE")
		_, err := stage(t, s, image)
		t.Errorf("came to an end: %v", err)
		return
	}
	h, files := newRegistry(t, false), big(t)
	push(t, h, "a/b:v1", imageOf(t, files))
	h.set(blobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:700<<10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}))
	cache := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPullGoesOnAfterAKill$")
	// What the killed one leaves behind goes with this one.
	cmd.Env = append(os.Environ(), "TEST_KILL="+h.host()+"/a/b:v1", "TEST_CACHE="+cache, "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var have int64
	for deadline := time.Now().Add(30 * time.Second); have < 600<<10 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		parts, err := filepath.Glob(filepath.Join(cache, "*"+partSuffix))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			if info, err := os.Stat(part); err == nil {
				have = info.Size()
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if have < 600<<10 {
		t.Fatalf("%d bytes are there", have)
	}
	var ranges rangesOf
	h.set(blobs(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		ranges.add(r)
		return false
	}))
	s := newStore(t, "")
	s.CacheDirectory = cache
	got, err := stage(t, s, h.host()+"/a/b:v1")
	if err != nil || got["big"] != files["big"] {
		t.Fatal(err)
	}
	if len(ranges.list) != 1 || !strings.HasPrefix(ranges.list[0], "bytes=") {
		t.Errorf("asked for %q", ranges.list)
	}
}
