package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/installer/artifact"
	"github.com/drover-dev/drover/installer/k3s"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/oci"
	"github.com/drover-dev/drover/installer/rke2"
	"github.com/drover-dev/drover/installer/shell"
)

// release writes files and, for each architecture, a checksum file that lists all but install.sh.
func release(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	var sums strings.Builder
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
		if name != "install.sh" {
			fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(content)), name)
		}
	}
	for _, arch := range layout.Architectures {
		write(t, filepath.Join(dir, "sha256sum-"+arch+".txt"), sums.String())
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// noise is content that does not compress, of a size that takes more than one read.
func noise(seed uint64) string {
	raw := make([]byte, 300_000)
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	return string(raw)
}

func k3sRelease() map[string]string {
	return map[string]string{
		"k3s": noise(1), "k3s-arm64": noise(2), "install.sh": "#!/bin/sh\n", "k3s-airgap-images-amd64.tar": noise(3), "unrelated": "x",
	}
}

func options(t *testing.T, dir string, arches ...string) Options {
	t.Helper()
	source, err := artifact.Open(dir, artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Definition: k3s.Definition(), Version: "v1.36.3+k3s1", Architectures: arches, Source: source, TempDir: t.TempDir()}
}

func build(t *testing.T, opts Options) ([]oci.Image, v1.ImageIndex) {
	t.Helper()
	images, err := Build(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	index, err := oci.Index(images)
	if err != nil {
		t.Fatal(err)
	}
	return images, index
}

// content returns what an agent unpacks: the files of an image, each with its mode.
func content(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	in := mutate.Extract(img)
	defer func() { _ = in.Close() }()
	files := map[string]string{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s has time %s and owner %d:%d", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		files[header.Name] = fmt.Sprintf("%o %x", header.Mode, sha256.Sum256(raw))
	}
}

func sumWithMode(mode int, text string) string {
	return fmt.Sprintf("%o %x", mode, sha256.Sum256([]byte(text)))
}

func digest(t *testing.T, of interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	hash, err := of.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func TestSameFilesSameDigest(t *testing.T) {
	first := release(t, k3sRelease())
	second := release(t, k3sRelease())
	for name := range k3sRelease() { // other times and modes must not show
		path := filepath.Join(second, name)
		if err := errors.Join(os.Chtimes(path, time.Now(), time.Unix(1e9, 0)), os.Chmod(path, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	// The order of lines differs from release to release, since it comes from a map; make it the same file.
	raw, err := os.ReadFile(filepath.Join(first, "sha256sum-amd64.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range layout.Architectures {
		write(t, filepath.Join(first, "sha256sum-"+arch+".txt"), string(raw))
		write(t, filepath.Join(second, "sha256sum-"+arch+".txt"), string(raw))
	}
	_, a := build(t, options(t, first, "amd64", "arm64"))
	_, b := build(t, options(t, second, "amd64", "arm64"))
	if digest(t, a) != digest(t, b) {
		t.Errorf("digests %s and %s differ", digest(t, a), digest(t, b))
	}

	dirs := [2]string{t.TempDir(), t.TempDir()}
	for i, index := range []v1.ImageIndex{a, b} {
		for range 2 { // writing twice replaces
			if err := oci.WriteLayout(dirs[i], "v1.36.3-k3s1", index); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(tree(t, dirs[0]), tree(t, dirs[1])); diff != "" {
		t.Errorf("OCI layouts differ (-first +second):\n%s", diff)
	}
}

func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		files[rel] = fmt.Sprintf("%x", sha256.Sum256(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestPushAndPullBack(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	files := k3sRelease()
	dir := release(t, files)
	_, index := build(t, options(t, dir, "amd64", "arm64"))
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://")+"/rancher/system-agent-installer-k3s:v1.36.3-k3s1",
		name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := oci.Push(context.Background(), ref, index, nil); err != nil {
		t.Fatal(err)
	}

	for arch, program := range map[string]string{"amd64": "k3s", "arm64": "k3s-arm64"} {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		sums, _ := os.ReadFile(filepath.Join(dir, "sha256sum-"+arch+".txt"))
		want := map[string]string{
			"run.sh":                     sumWithMode(0o755, string(k3s.Definition().RunScript)),
			"lib.sh":                     sumWithMode(0o644, string(shell.Lib)),
			"installer.sh":               sumWithMode(0o755, files["install.sh"]),
			"k3s":                        sumWithMode(0o755, files[program]),
			"sha256sum-" + arch + ".txt": sumWithMode(0o644, string(sums)),
		}
		if arch == "amd64" {
			want["k3s-airgap-images-amd64.tar"] = sumWithMode(0o644, files["k3s-airgap-images-amd64.tar"])
		}
		if diff := cmp.Diff(want, content(t, img)); diff != "" {
			t.Errorf("files in the image for %s (-want +got):\n%s", arch, diff)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.OS != "linux" || config.Config.Labels["org.opencontainers.image.version"] != "v1.36.3+k3s1" {
			t.Errorf("configuration of the image for %s: %+v", arch, config)
		}
	}
	if _, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "s390x"})); err == nil {
		t.Error("a machine of another architecture gets an image")
	}
}

func TestTarball(t *testing.T) {
	images, _ := build(t, options(t, release(t, k3sRelease()), "amd64"))
	tag, err := name.NewTag("rancher/system-agent-installer-k3s:v1.36.3-k3s1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	if err := oci.WriteTarball(context.Background(), file, tag, images[0]); err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(file, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content(t, images[0]), content(t, read)); diff != "" {
		t.Errorf("files in the tarball (-want +got):\n%s", diff)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := oci.WriteTarball(ended, filepath.Join(dir, "other.tar"), tag, images[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted write gives %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
}

func TestLayoutKeepsOtherImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	_, index := build(t, options(t, release(t, k3sRelease()), "amd64"))
	for _, tag := range []string{"one", "two", "one"} {
		if err := oci.WriteLayout(dir, tag, index); err != nil {
			t.Fatal(err)
		}
	}
	path, err := ocilayout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	tags := map[string]int{}
	for _, m := range manifest.Manifests {
		tags[m.Annotations[oci.RefNameAnnotation]]++
	}
	if diff := cmp.Diff(map[string]int{"one": 1, "two": 1}, tags); diff != "" {
		t.Errorf("images in the layout (-want +got):\n%s", diff)
	}
	other := t.TempDir()
	write(t, filepath.Join(other, "mine"), "x")
	if err := oci.WriteLayout(other, "one", index); err == nil || !strings.Contains(err.Error(), "is not an OCI layout") {
		t.Errorf("a folder of something else gives %v", err)
	}
}

func TestRKE2(t *testing.T) {
	opts := options(t, release(t, map[string]string{
		"rke2.linux-amd64.tar.gz": noise(1), "rke2-images.linux-amd64.tar.zst": noise(2), "rke2-images.linux-amd64.tar.gz": noise(3),
		"rke2-images-calico.linux-amd64.tar.zst": noise(4), "install.sh": "x",
	}), "amd64")
	opts.Definition, opts.Version = rke2.Definition(), "v1.36.3+rke2r1"
	opts.AdditionalImages = []string{"rke2-images-calico.linux-{arch}.tar.zst"}
	images, _ := build(t, opts)
	var names []string
	for file := range content(t, images[0]) {
		names = append(names, file)
	}
	want := map[string]bool{"run.sh": true, "lib.sh": true, "installer.sh": true, "sha256sum-amd64.txt": true, "rke2.linux-amd64.tar.gz": true,
		"rke2-images.linux-amd64.tar.zst": true, "rke2-images-calico.linux-amd64.tar.zst": true}
	got := map[string]bool{}
	for _, name := range names {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files in the image (-want +got):\n%s", diff)
	}
}
