package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// saved is an image as "docker save" writes it.
func saved(t *testing.T, tag string, image v1.Image) []byte {
	t.Helper()
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := tarball.Write(ref, image, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// laidOut is an OCI layout as a tar stream.
func laidOut(t *testing.T, annotations map[string]string, add mutate.Appendable) []byte {
	t.Helper()
	dir := t.TempDir()
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	switch add := add.(type) {
	case v1.Image:
		err = written.AppendImage(add, layout.WithAnnotations(annotations))
	case v1.ImageIndex:
		err = written.AppendIndex(add, layout.WithAnnotations(annotations))
	}
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func compressed(t *testing.T, raw []byte, with func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := with(&buf)
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

func put(t *testing.T, s *Store, file string, raw []byte) string {
	t.Helper()
	full := filepath.Join(s.ImagesDirectory, file)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

// offline makes a store that has no network.
func offline(t *testing.T) *Store {
	s := newStore(t, "")
	s.proxy = func(*http.Request) (*url.URL, error) { return nil, fmt.Errorf("there is no network") }
	s.patience = 1
	return s
}

func TestStageFromArchives(t *testing.T) {
	t.Parallel()
	image := twoLayers(t)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: imageOf(t, map[string]string{"run.sh": "arm"}),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	indexDigest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	const tag = "docker.io/rancher/installer:v1"
	plain := saved(t, tag, image)
	bzipped, err := os.ReadFile("testdata/installer.tar.bz2") // "docker save" of the same tag and files
	if err != nil {
		t.Fatal(err)
	}
	byName := laidOut(t, map[string]string{"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": "v1"}, image)
	tests := map[string]struct {
		file string
		raw  []byte
		ref  string
	}{
		"plain":         {file: "image.tar", raw: plain, ref: tag},
		"in a folder":   {file: "a/b/image.tar", raw: plain, ref: tag},
		"gzip":          {file: "image.tar.gz", raw: compressed(t, plain, gzipped), ref: tag},
		"large letters": {file: "image.TGZ", raw: compressed(t, plain, gzipped), ref: tag},
		"zstd": {file: "image.tar.zst", raw: compressed(t, plain, func(w io.Writer) io.WriteCloser {
			z,
				_ := zstd.NewWriter(w)
			return z
		}), ref: tag},
		"zstd, short": {file: "image.tzst", raw: compressed(t, plain, func(w io.Writer) io.WriteCloser {
			z,
				_ := zstd.NewWriter(w)
			return z
		}), ref: tag},
		"lz4": {file: "image.tar.lz4", raw: compressed(t, plain,
			func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) }), ref: tag},
		"bzip2":                        {file: "image.tar.bz2", raw: bzipped, ref: tag},
		"bzip2, short":                 {file: "image.tbz", raw: bzipped, ref: tag},
		"compressed without saying so": {file: "image.tar", raw: compressed(t, plain, gzipped), ref: tag},
		"OCI by containerd's name":     {file: "image.tar", raw: byName, ref: tag},
		"OCI by its name": {file: "image.tar", raw: laidOut(t, map[string]string{"org.opencontainers.image.ref.name": tag},
			image), ref: "rancher/installer:v1"},
		"OCI by digest": {file: "image.tar.gz", raw: compressed(t, byName, gzipped), ref: "rancher/installer@" +
			digest.String()},
		"OCI by tag and digest": {file: "image.tar", raw: byName, ref: "rancher/installer:v1@" + digest.String()},
		"OCI with platforms": {file: "image.tar", raw: laidOut(t, map[string]string{"io.containerd.image.name": tag}, index),
			ref: tag},
		"OCI by the index's digest":      {file: "image.tar", raw: laidOut(t, nil, index), ref: "rancher/installer@" + indexDigest.String()},
		"OCI by one platform's digest":   {file: "image.tar", raw: laidOut(t, nil, index), ref: "rancher/installer@" + digest.String()},
		"layers in another order":        {file: "image.tar", raw: reordered(t, plain, false), ref: tag},
		"layers in another order, gzip":  {file: "image.tgz", raw: compressed(t, reordered(t, plain, false), gzipped), ref: tag},
		"layers that are links to files": {file: "image.tar", raw: reordered(t, plain, true), ref: tag},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := offline(t)
			put(t, s, "a-broken.tar", []byte("no tar"))
			put(t, s, ".hidden.tar", plain[:100])
			put(t, s, "notes.txt", plain)
			put(t, s, test.file, test.raw)
			got, err := stage(t, s, test.ref)
			checkStaged(t, got, err)
			if left, _ := s.Host.ReadDir(s.CacheDirectory); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// reordered writes the files of an archive the other way round; with links, layers stand in folders as links to the real files.
func reordered(t *testing.T, raw []byte, links bool) []byte {
	t.Helper()
	type file struct {
		header  *tar.Header
		content []byte
	}
	var all []file
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		content, _ := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file{header, content})
	}
	slices.Reverse(all)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	write := func(header tar.Header, content []byte) {
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range all {
		if links && f.header.Name == "manifest.json" {
			var manifest []map[string]any
			if err := json.Unmarshal(f.content, &manifest); err != nil {
				t.Fatal(err)
			}
			var layers []string
			for i, layer := range manifest[0]["Layers"].([]any) {
				layers = append(layers, fmt.Sprintf("l%d/layer.tar", i))
				write(tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join(fmt.Sprintf("l%d", i), "layer.tar"), Linkname: "../" + layer.(string)}, nil)
			}
			manifest[0]["Layers"] = layers
			f.content, _ = json.Marshal(manifest)
			f.header.Size = int64(len(f.content))
		}
		write(*f.header, f.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestFirstArchiveByNameCounts(t *testing.T) {
	const tag = "rancher/installer:v1"
	s := offline(t)
	put(t, s, "b.tar", saved(t, tag, imageOf(t, map[string]string{"from": "b"})))
	put(t, s, "a/z.tar", saved(t, tag, imageOf(t, map[string]string{"from": "a/z"})))
	put(t, s, "a.tar", saved(t, "rancher/installer:v2", imageOf(t, map[string]string{"from": "a"})))
	for range 5 {
		got, err := stage(t, s, tag)
		if err != nil || got["from"] != "a/z" {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

// TestArchivesOfOtherArchitectures: archives of one tag for all architectures of a fleet may be copied to all machines.
func TestArchivesOfOtherArchitectures(t *testing.T) {
	const tag = "docker.io/rancher/installer:v1"
	of := func(architecture string) v1.Image { return imageFor(t, v1.Platform{Architecture: architecture}) }
	s := offline(t)
	put(t, s, "a.tar", saved(t, tag, of("arm64")))
	put(t, s, "b.tar", laidOut(t, map[string]string{"io.containerd.image.name": tag}, of("arm64")))
	_, err := stage(t, s, tag)
	for _, file := range []string{"a.tar", "b.tar"} {
		want := file + ": the image is for linux/arm64, this machine is linux/amd64"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	put(t, s, "c.tar", saved(t, tag, of("amd64")))
	if got, err := stage(t, s, tag); err != nil || got["for"] != "amd64" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestArchivesThatOthersCanChange shows that S6 cannot happen to archives: what others than root can write is not used.
func TestArchivesThatOthersCanChange(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const tag = "rancher/installer:v1"
	raw := saved(t, tag, twoLayers(t))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		spoil func(s *Store, file string)
		err   string
	}{
		"file of everybody": {func(_ *Store, f string) { must(os.Chmod(f, 0o646)) }, "installer.tar: is writable by others"},
		"file of a group": {func(_ *Store, f string) { must(os.Chmod(f, 0o660)); must(os.Chown(f, 0, 1234)) },
			"installer.tar: is writable by group 1234"},
		"file of a user": {func(_ *Store, f string) { must(os.Chown(f, 1234, 0)) },
			"installer.tar: is owned by user 1234: change the owner to root"},
		"folder of everybody":     {func(_ *Store, f string) { must(os.Chmod(filepath.Dir(f), 0o777)) }, "sub: is writable by others"},
		"images folder of a user": {func(s *Store, _ string) { must(os.Chown(s.ImagesDirectory, 1234, 0)) }, "images: is owned by user 1234"},
		"link": {func(_ *Store, f string) { must(os.Rename(f, f+".real")); must(os.Symlink(f+".real", f)) },
			"installer.tar: is a symbolic link: replace it by the file itself"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			s := offline(t)
			file := put(t, s, "sub/installer.tar", raw)
			test.spoil(s, file)
			if _, err := stage(t, s, tag); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("group root may", func(t *testing.T) {
		s := offline(t)
		must(os.Chmod(put(t, s, "installer.tar", raw), 0o660))
		got, err := stage(t, s, tag)
		checkStaged(t, got, err)
	})
}
