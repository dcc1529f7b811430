package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

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
		"no JSON": {manifest: "<html>", err: "decoding the manifest: invalid character"},
		"schema 1": {manifest: `{"schemaVersion":1,"fsLayers":[]}`,
			err: "is of Docker schema 1, which cannot be verified: push the image again with a current tool"},
		"schema 1 by its type": {manifest: `{}`, kind: string(types.DockerManifestSchema1Signed),
			err: "is of Docker schema 1"},
		"an artifact": {manifest: `{"schemaVersion":2,"mediaType":"application/x-other"}`,
			err: `the manifest is not that of an image: media type "application/x-other"`},
		"too many layers": {manifest: layers(4, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1,"digest":%q}`),
			err: "the image has 4 layers, the limit is 3"},
		"too many bytes": {manifest: layers(2, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":600,"digest":%q}`),
			err: "the layers of the image are larger than 1000 B, which is the limit"},
		"sizes that overflow": {manifest: layers(3,
			`{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":9223372036854775807,"digest":%q}`),
			err: "the layers of the image are larger than 1000 B"},
		"a negative size": {manifest: layers(1, `{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":-1,"digest":%q}`),
			err: "layer 0 has size -1"},
		"foreign layers": {manifest: layers(1, `{"mediaType":"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip","size":1,"digest":%q}`),
			err: "layer 0 (application/vnd.docker.image.rootfs.foreign.diff.tar.gzip) is not in the registry: push the image with all its layers"},
		"layers with URLs": {manifest: layers(1,
			`{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1,"urls":["http://169.254.169.254/"],"digest":%q}`),
			err: "is not in the registry: push the image with all its layers"},
		"no layers of an image": {manifest: layers(1, `{"mediaType":"application/vnd.cncf.helm.chart.content.v1.tar+gzip","size":1,"digest":%q}`),
			err: `layer 0 has media type "application/vnd.cncf.helm.chart.content.v1.tar+gzip", which is not that of a layer`},
		"too large": {manifest: `{"layers":[]` + strings.Repeat(" ", maxManifestBytes) + `}`, err: "the manifest is larger than 4194304 bytes"},
		"other platforms": {manifest: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digest +
			`","size":1,"platform":{"os":"linux","architecture":"s390x"}},{"digest":"` + digest +
			`","size":1,"platform":{"os":"windows","architecture":"amd64"}}]}`,
			err: "the image is not available for linux/amd64, only for linux/s390x, windows/amd64"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			h := newRegistry(t, false)
			h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if strings.Contains(r.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", test.kind)
					_, _ = io.WriteString(w, test.manifest)
					return
				}
				next.ServeHTTP(w, r)
			})
			s := newStore(t, "")
			s.limits = limits{layers: 3, bytes: 1000, unpackedBytes: 1000}
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
	h := newRegistry(t, false)
	push(t, h, "a/b:v1", imageOf(t, map[string]string{"a": strings.Repeat("0", 600<<10)},
		map[string]string{"b": strings.Repeat("0", 600<<10)}))
	s := newStore(t, "")
	s.limits.unpackedBytes = 1 << 20
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil || !strings.Contains(err.Error(),
		"the image unpacks to more than 1.0 MiB, which is the limit") {
		t.Errorf("got %v", err)
	}
	s.limits.unpackedBytes = 2 << 20
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err != nil {
		t.Error(err)
	}
}

func TestManifestThatDoesNotMatchItsDigest(t *testing.T) {
	good, bad, image := newRegistry(t, false), newRegistry(t, false), twoLayers(t)
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
	if _, err := stage(t, newStore(t, ""), bad.host()+"/a/b@"+digest.String()); err == nil ||
		!strings.Contains(err.Error(), ", want "+digest.String()) {
		t.Errorf("got %v", err)
	}
	s := newStore(t, "mirrors:\n  docker.io:\n    endpoint: [\""+bad.URL+"\", \""+good.URL+"\"]\n")
	got, err := stage(t, s, "a/b:v7@"+digest.String())
	checkStaged(t, got, err)
}

// TestImageOfAnotherPlatform: a tag need not have an index, so that the configuration of its image decides. A mirror that has the image of
// another platform does not keep the registry from serving the right one.
func TestImageOfAnotherPlatform(t *testing.T) {
	tests := map[string]struct {
		platform v1.Platform
		err      string
	}{
		"the same":                {platform: v1.Platform{OS: "linux", Architecture: "amd64"}},
		"the same with a variant": {platform: v1.Platform{OS: "linux", Architecture: "amd64", Variant: "v2"}},
		"none":                    {},
		"no OS":                   {platform: v1.Platform{Architecture: "amd64"}},
		"another architecture": {platform: v1.Platform{OS: "linux", Architecture: "arm", Variant: "v7"},
			err: "the image is for linux/arm/v7, this machine is linux/amd64"},
		"another OS": {platform: v1.Platform{OS: "windows", Architecture: "amd64"},
			err: "the image is for windows/amd64, this machine is linux/amd64"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			mirror, registry, image := newRegistry(t, false), newRegistry(t, false), imageFor(t, test.platform)
			push(t, mirror, "a/b:v1", image)
			s := newStore(t, "mirrors:\n  "+registry.host()+":\n    endpoint: [\""+mirror.URL+"\"]\n")
			ref := registry.host() + "/a/b:v1"
			for range 2 {
				got, err := stage(t, s, ref)
				if test.err == "" && (err != nil || got["for"] != test.platform.Architecture) ||
					test.err != "" && (err == nil || !strings.Contains(err.Error(), "from "+mirror.host()+": "+test.err)) {
					t.Errorf("got %v, %v", got, err)
				}
			}
			push(t, registry, "a/b:v1", twoLayers(t))
			if got, err := stage(t, s, ref); test.err != "" {
				checkStaged(t, got, err)
			}
			// Whoever names a digest has chosen.
			digest, err := image.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := stage(t, s, registry.host()+"/a/b@"+digest.String()); err != nil || got["for"] != test.platform.Architecture {
				t.Errorf("by digest: got %v, %v", got, err)
			}
		})
	}
}

// TestDigestOfAnIndex shows that B12 cannot happen: an image can be pinned by the digest of its index or of one platform's manifest.
func TestDigestOfAnIndex(t *testing.T) {
	h := newRegistry(t, false)
	inner := twoLayers(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: inner, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	index = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux",
		Architecture: "amd64"}}})
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
	h := newRegistry(t, false)
	image := mutate.MediaType(twoLayers(t), types.DockerManifestSchema2)
	push(t, h, "a/b:v1", image)
	got, err := stage(t, newStore(t, ""), h.host()+"/a/b:v1")
	checkStaged(t, got, err)
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":[{`+
		`"mediaType":"application/vnd.oci.image.layer.v1.tar",`+
		`"size":5,"digest":"sha256:`+strings.Repeat("a", 64)+`"}]}`), "")
	f.Add([]byte(`{"manifests":[{"digest":"sha256:`+strings.Repeat("a", 64)+`","platform":{"os":"linux","architecture":"amd64"}}]}`),
		string(types.OCIImageIndex))
	f.Add([]byte(`{"schemaVersion":1}`), "")
	bounds := limits{layers: 3, bytes: 1 << 20, unpackedBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, raw []byte, kind string) {
		m, err := decodeManifest(raw, types.MediaType(kind))
		if err != nil {
			return
		}
		if (m.image == nil) == (m.index == nil) {
			t.Fatal("neither or both")
		}
		if m.index != nil {
			_, _ = selectPlatform(m.index, v1.Platform{OS: "linux", Architecture: "amd64"})
			return
		}
		layers, err := checkedLayers(m.image, bounds)
		if err != nil {
			return
		}
		var total int64
		for _, layer := range layers {
			total += layer.Size
		}
		if len(layers) > bounds.layers || total < 0 || total > bounds.bytes {
			t.Errorf("%d layers of %d bytes", len(layers), total)
		}
		if _, err := json.Marshal(m.image); err != nil {
			t.Error(err)
		}
	})
}
