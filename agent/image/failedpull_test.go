package image

import (
	"net/http"
	"strings"
	"testing"
	"time"
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
