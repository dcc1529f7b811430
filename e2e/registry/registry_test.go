package registry

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func serve(t *testing.T, dir string) string {
	t.Helper()
	handler, err := New(dir, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestImagesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	addr := serve(t, dir)
	image, err := random.Image(1024, 3)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(512, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(mustRef(t, addr+"/rancher/image:v1"), image); err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(mustRef(t, addr+"/rancher/index:v1"), index); err != nil {
		t.Fatal(err)
	}

	again := serve(t, dir)
	got, err := remote.Image(mustRef(t, again+"/rancher/image:v1"))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := image.Digest()
	if digest, err := got.Digest(); err != nil || digest != want {
		t.Errorf("digest %s, %v; want %s", digest, err, want)
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	if _, err := remote.Index(mustRef(t, again+"/rancher/index:v1")); err != nil {
		t.Error(err)
	}
}

func TestTooLargeManifestIsRefused(t *testing.T) {
	addr := serve(t, t.TempDir())
	req, err := http.NewRequest(http.MethodPut, "http://"+addr+"/v2/a/manifests/b", strings.NewReader(strings.Repeat("x", maxManifest+1)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestServeSaysWhenItsPortIsTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = Serve(t.Context(), t.TempDir(), ln.Addr().String(), log.New(io.Discard, "", 0))
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Serve(ctx, t.TempDir(), "127.0.0.1:0", log.New(io.Discard, "", 0)); err != nil {
		t.Error(err)
	}
}

func mustRef(t *testing.T, s string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(s, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
