package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

// TestFailedPullKeepsItsLayers: if one layer cannot be pulled, the next try pulls that one alone.
func TestFailedPullKeepsItsLayers(t *testing.T) {
	h, image := newRegistry(t, false), twoLayers(t)
	push(t, h, "a/b:v1", image)
	m, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	first, second := m.Layers[0].Digest, m.Layers[1].Digest
	s := newStore(t, "")
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !strings.HasSuffix(r.URL.Path, second.String()) {
			next.ServeHTTP(w, r)
			return
		}
		for s.cache.stat(blobName(first)).Size == 0 && r.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		w.WriteHeader(http.StatusNotFound)
	})
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil {
		t.Fatal("an image without its second layer is staged")
	}
	h.asked()
	h.set(nil)
	got, err := stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
	for _, request := range h.asked() {
		if strings.HasSuffix(request, first.String()) {
			t.Errorf("the first layer was pulled again: %s", request)
		}
	}
}

// smallHost is a machine whose disk is full after a few bytes of a layer, or with unpacking set when a layer is unpacked.
type smallHost struct {
	host.Host
	unpacking bool
}

func (h *smallHost) AppendStream(path string, content io.Reader) (int64, error) {
	if h.unpacking {
		return h.Host.AppendStream(path, content)
	}
	written, err := h.Host.AppendStream(path, io.LimitReader(content, 10))
	return written, errors.Join(err, &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
}

func (h *smallHost) Unpack(ctx context.Context, dir string, layer io.Reader) error {
	return errors.Join(h.Host.Unpack(ctx, dir, layer), syscall.ENOSPC)
}

// TestFullDiskIsNotLeftFull: an image that does not fit on the disk leaves nothing there, neither layers nor what was unpacked.
func TestFullDiskIsNotLeftFull(t *testing.T) {
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	for name, unpacking := range map[string]bool{"while layers are pulled": false, "while they are unpacked": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newStore(t, ""), t.TempDir()
			s.Host = &smallHost{Host: host.Local{}, unpacking: unpacking}
			if err := s.Stage(t.Context(), h.host()+"/a/b:v1", dir, nil); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("got %v", err)
			}
			if left := files(t, s); len(left) > 0 {
				t.Errorf("the cache has %v", left)
			}
			if left, err := s.Host.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the directory has %v, %v", left, err)
			}
			s.Host = host.Local{}
			got, err := stage(t, s, h.host()+"/a/b:v1")
			checkStaged(t, got, err)
		})
	}
}
