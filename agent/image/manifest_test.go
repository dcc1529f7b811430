package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func TestManifestsThatAreRefused(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	layers := func(n int, layer string) string {
		return `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[` +
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf(layer, digest)+",", n), ",") + `]}`
	}
	tests := map[string]struct{ manifest, kind, err string }{
		"no JSON":  {manifest: "<html>", err: "decoding the manifest: invalid character"},
		"schema 1": {manifest: `{"schemaVersion":1,"fsLayers":[]}`, err: "is of Docker schema 1, which cannot be verified: push the image again"},
		"schema 1 by its type": {manifest: `{}`, kind: string(types.DockerManifestSchema1Signed),
			err: "is of Docker schema 1"},
		"an artifact": {manifest: `{"schemaVersion":2,"mediaType":"application/x-other"}`, err: `a manifest of type "application/x-other" is no image`},
		"too many layers": {manifest: layers(4, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1,"digest":%q}`),
			err: "the image has 4 layers, and 3 are the limit"},
		"too many bytes": {manifest: layers(2, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":600,"digest":%q}`),
			err: "the layers of the image have more than 1000 B, which is the limit"},
		"sizes that overflow": {manifest: layers(3, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":9223372036854775807,"digest":%q}`),
			err: "the layers of the image have more than 1000 B"},
		"a negative size": {manifest: layers(1, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":-1,"digest":%q}`), err: "layer 0 has the size -1"},
		"foreign layers": {manifest: layers(1, `{"mediaType":"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip","size":1,"digest":%q}`),
			err: "layer 0 is to be fetched from elsewhere (application/vnd.docker.image.rootfs.foreign.diff.tar.gzip): push the image with all its layers"},
		"layers with URLs": {manifest: layers(1, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1,"urls":["http://169.254.169.254/"],"digest":%q}`),
			err: "layer 0 is to be fetched from elsewhere"},
		"no layers of an image": {manifest: layers(1, `{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip","size":1,"digest":%q}`),
			err: `layer 0 is of type "application/vnd.cncf.helm.chart.content.v1.tar+gzip", which is no layer of an image`},
		"too large": {manifest: `{"layers":[]` + strings.Repeat(" ", maxManifest) + `}`, err: "the manifest is larger than 4194304 bytes"},
		"other platforms": {manifest: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digest +
			`","size":1,"platform":{"os":"linux","architecture":"s390x"}},{"digest":"` + digest + `","size":1,"platform":{"os":"windows","architecture":"amd64"}}]}`,
			err: "the image is not for linux/amd64, only for linux/s390x, windows/amd64"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			h := newHub(t, false)
			h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", test.kind)
					_, _ = io.WriteString(w, test.manifest)
					return
				}
				next.ServeHTTP(w, r)
			})
			s := newStore(t, "")
			s.Limits = Limits{Layers: 3, Bytes: 1000, UnpackedBytes: 1000}
			_, err := stage(t, s, h.host()+"/a/b:v1")
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v", err)
			}
			for _, request := range h.asked() {
				if strings.Contains(request, "/blobs/") {
					t.Errorf("asked for %s", request)
				}
			}
		})
	}
}

func TestImageThatUnpacksToTooMuch(t *testing.T) {
	h := newHub(t, false)
	push(t, h, "a/b:v1", imageOf(t, map[string]string{"a": strings.Repeat("0", 600<<10)}, map[string]string{"b": strings.Repeat("0", 600<<10)}))
	s := newStore(t, "")
	s.Limits.UnpackedBytes = 1 << 20
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil || !strings.Contains(err.Error(), "the image unpacks to more than 1 MiB, which is the limit") {
		t.Errorf("got %v", err)
	}
	s.Limits.UnpackedBytes = 2 << 20
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err != nil {
		t.Error(err)
	}
}

func TestManifestThatDoesNotMatchItsDigest(t *testing.T) {
	good, bad, image := newHub(t, false), newHub(t, false), twoLayers(t)
	push(t, good, "a/b:v1", image)
	push(t, bad, "a/b:v1", image)
	bad.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			_, _ = io.WriteString(w, `{"schemaVersion":2,"layers":[]}`)
			return
		}
		next.ServeHTTP(w, r)
	})
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage(t, newStore(t, ""), bad.host()+"/a/b@"+digest.String()); err == nil || !strings.Contains(err.Error(), "and not "+digest.String()) {
		t.Errorf("got %v", err)
	}
	s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+bad.URL+"\", \""+good.URL+"\"]\n")
	got, err := stage(t, s, "a/b:v7@"+digest.String())
	checkStaged(t, got, err)
}

// TestDigestOfAnIndex shows that B12 cannot happen: an image can be pinned by the digest of its index or of one platform's manifest.
func TestDigestOfAnIndex(t *testing.T) {
	h := newHub(t, false)
	inner := twoLayers(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: inner, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	ref, err := name.ParseReference(h.host() + "/a/b:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	outer, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	direct, err := inner.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, digest := range []v1.Hash{outer, direct} {
		got, err := stage(t, newStore(t, ""), h.host()+"/a/b@"+digest.String())
		checkStaged(t, got, err)
	}
}

func TestDockerSchema2(t *testing.T) {
	h := newHub(t, false)
	image := mutate.MediaType(twoLayers(t), types.DockerManifestSchema2)
	push(t, h, "a/b:v1", image)
	got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
	checkStaged(t, got, err)
}

func TestSize(t *testing.T) {
	got := map[int64]string{}
	for _, n := range []int64{0, 1023, 1024, 1536, 16 << 30, 1 << 50} {
		got[n] = size(n)
	}
	want := map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 16 << 30: "16 GiB", 1 << 50: "1024 TiB"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzDecodeDocument(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",`+
		`"size":5,"digest":"sha256:`+strings.Repeat("a", 64)+`"}]}`), "")
	f.Add([]byte(`{"manifests":[{"digest":"sha256:`+strings.Repeat("a", 64)+`","platform":{"os":"linux","architecture":"amd64"}}]}`), string(types.OCIImageIndex))
	f.Add([]byte(`{"schemaVersion":1}`), "")
	limits := Limits{Layers: 3, Bytes: 1 << 20, UnpackedBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, raw []byte, kind string) {
		document, err := decodeDocument(raw, types.MediaType(kind))
		if err != nil {
			return
		}
		if (document.image == nil) == (document.index == nil) {
			t.Fatal("neither or both")
		}
		if document.index != nil {
			_, _ = pick(document.index, v1.Platform{OS: "linux", Architecture: "amd64"})
			return
		}
		layers, err := layersOf(document.image, limits)
		if err != nil {
			return
		}
		var total int64
		for _, layer := range layers {
			total += layer.Size
		}
		if len(layers) > limits.Layers || total < 0 || total > limits.Bytes {
			t.Errorf("%d layers of %d bytes", len(layers), total)
		}
		if _, err := json.Marshal(document.image); err != nil {
			t.Error(err)
		}
	})
}
