package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
)

// TestDamagedArchive finds the damage when something has been unpacked already, and takes the image from the registry.
func TestDamagedArchive(t *testing.T) {
	t.Parallel()
	h := newRegistry(t, false)
	image := imageOf(t, map[string]string{"run.sh": "#!/bin/sh\n"}, map[string]string{"k3s": "v2"})
	push(t, h, "rancher/installer:v1", image)
	ref := h.host() + "/rancher/installer:v1"
	s := newStore(t, "")
	raw := saved(t, ref, imageOf(t, map[string]string{"stale": "x"}, map[string]string{"k3s": "v1"}))
	for title, raw := range map[string][]byte{
		"changed": changedLayer(t, raw), "cut": raw[:len(raw)/2], "shorter": raw[:512],
	} {
		t.Run(title, func(t *testing.T) {
			put(t, s, "image.tar", raw)
			got, err := stage(t, s, ref)
			checkStaged(t, got, err)
		})
	}
	if err := os.RemoveAll(s.CacheDirectory); err != nil {
		t.Fatal(err)
	}
	h.Close()
	put(t, s, "image.tar", changedLayer(t, raw))
	s.patience = 1
	if _, err := stage(t, s, ref); err == nil || !strings.Contains(err.Error(), "image.tar: layer ") ||
		!strings.Contains(err.Error(), "digest mismatch: got sha256:") {
		t.Errorf("got %v", err)
	}
}

// changedLayer replaces the content of the last layer of an archive by another layer.
func changedLayer(t *testing.T, raw []byte) []byte {
	t.Helper()
	other, err := layerOf(t, map[string]string{"k3s": "evil"}).Compressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(other)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		if strings.HasSuffix(header.Name, ".tar.gz") {
			names = append(names, header.Name)
		}
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		body, _ := io.ReadAll(r)
		if header.Name == names[len(names)-1] {
			body, header.Size = content, int64(len(content))
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// countingHost counts how often a file is opened.
type countingHost struct {
	host.Host
	mu    sync.Mutex
	opens map[string]int
}

func (h *countingHost) Open(path string) (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opens[filepath.Base(path)]++
	return h.Host.Open(path)
}

func TestCompressedArchiveIsReadTwice(t *testing.T) {
	const tag = "rancher/installer:v1"
	var layers []map[string]string
	for i := range 6 {
		layers = append(layers, map[string]string{fmt.Sprint(i): "x"})
	}
	s := offline(t)
	counting := &countingHost{Host: host.Local{}, opens: map[string]int{}}
	s.Host = counting
	put(t, s, "image.tgz", compressed(t, saved(t, tag, imageOf(t, layers...)), gzipped))
	var last, total int64
	if err := s.Stage(t.Context(), tag, t.TempDir(), func(done, all int64) { last, total = done, all }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"image.tgz": 2}, counting.opens); diff != "" {
		t.Error(diff)
	}
	if last == 0 || last != total {
		t.Errorf("told %d of %d", last, total)
	}
}

// TestAirGap says what was tried where nothing is to be had.
func TestAirGap(t *testing.T) {
	s := offline(t)
	put(t, s, "other.tar", saved(t, "rancher/other:v1", twoLayers(t)))
	_, err := stage(t, s, "rancher/installer:v1")
	want := "from index.docker.io: there is no network; not found in any of the 1 archives in " + s.ImagesDirectory
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stage(ctx, "rancher/installer:v1", t.TempDir(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzArchive(f *testing.F) {
	layer := `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":5,"digest":"sha256:` + strings.Repeat("a", 64) + `"}`
	f.Add([]byte(`[{"Config":"c.json","RepoTags":["a/b:v1"],"Layers":["l.tar"]}]`),
		[]byte(`{"rootfs":{"diff_ids":["sha256:`+strings.Repeat("a", 64)+`"]}}`), []byte(`{"manifests":[]}`))
	f.Add([]byte(`[]`), []byte(`{"layers":[`+layer+`]}`), []byte(`{"manifests":[{"digest":"sha256:`+strings.Repeat("a",
		64)+`","annotations":{"io.containerd.image.name":"a/b:v1"}}]}`))
	bounds := limits{layers: 3, bytes: 1 << 20, unpackedBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, manifest, config, index []byte) {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for file, raw := range map[string][]byte{"manifest.json": manifest, "c.json": config, "index.json": index, "l.tar": nil} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Size: int64(len(raw)), Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := indexTar(t.Context(), tar.NewReader(&buf))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"a/b:v1", "a/b@sha256:" + strings.Repeat("a", 64)} {
			ref, err := name.ParseReference(text)
			if err != nil {
				t.Fatal(err)
			}
			layers, err := c.find(ref, v1.Platform{OS: "linux", Architecture: "amd64"}, bounds)
			if err == nil && len(layers) > bounds.layers {
				t.Errorf("%d layers", len(layers))
			}
		}
	})
}
