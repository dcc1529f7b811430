package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/installer/k3s"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/rke2"
)

// created is the time of the images in tests.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// releases are one of k3s and one of RKE2, for both architectures.
func releases(t *testing.T) []Release {
	t.Helper()
	k, r := Release{k3s.Definition(), "v1.36.3+k3s1", t.TempDir()}, Release{rke2.Definition(), "v1.36.3+rke2r1", t.TempDir()}
	for dir, files := range map[string][]string{
		k.Directory: {"k3s", "k3s-arm64"}, r.Directory: {"rke2.linux-amd64.tar.gz", "rke2.linux-arm64.tar.gz"},
	} {
		sums := ""
		for _, name := range files {
			write(t, filepath.Join(dir, name), "content of "+name)
			sums += fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte("content of "+name)), name)
		}
		write(t, filepath.Join(dir, "install.sh"), "#!/bin/sh\n")
		for _, arch := range layout.Architectures {
			write(t, filepath.Join(dir, "sha256sum-"+arch+".txt"), sums)
		}
	}
	return []Release{k, r}
}

func options(t *testing.T, directory string, certificates Certificates) Options {
	t.Helper()
	return Options{
		Version: "v1.2.3+rc1", Revision: strings.Repeat("a", 40), Architectures: layout.Architectures, Binaries: directory,
		License: []byte("license of Drover\n"), Certificates: certificates, Releases: releases(t), Created: created, TempDir: t.TempDir(),
	}
}

func build(t *testing.T, opts Options) map[string]Image {
	t.Helper()
	built, err := Build(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Image{}
	for _, img := range built {
		byName[img.Name] = img
	}
	return byName
}

// The programs are compiled in different directories, and the images at different times from files of different times.
func TestReproducible(t *testing.T) {
	certificates := Certificates{PEM: []byte(authority(t, "public")), Version: "1"}
	digests := [2]map[string]string{{}, {}}
	for i := range digests {
		opts := options(t, writeBinaries(t, compileAll(t)), certificates)
		age := time.Now().Add(-time.Duration(i) * 1000 * time.Hour)
		err := filepath.WalkDir(opts.Binaries, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return errors.Join(os.Chtimes(path, age, age), os.Chmod(path, 0o700|os.FileMode(i)))
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, img := range build(t, opts) {
			digest, err := img.Index.Digest()
			if err != nil {
				t.Fatal(err)
			}
			digests[i][name] = digest.String()
		}
	}
	if diff := cmp.Diff(digests[0], digests[1]); diff != "" {
		t.Errorf("digests (-first +second):\n%s", diff)
	}
	if len(digests[0]) != len(Names())+2 {
		t.Errorf("images: %v", digests[0])
	}
}

// files lists the files of an image, each with mode and owner.
func files(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	found := map[string]string{}
	visit(t, img, func(header *tar.Header, _ io.Reader) {
		if !header.ModTime.Equal(created) {
			t.Errorf("%s has the time %s", header.Name, header.ModTime)
		}
		found[header.Name] = fmt.Sprintf("%c %o %d:%d", header.Typeflag, header.Mode, header.Uid, header.Gid)
	})
	return found
}

// visit calls a function for every file and directory of an image.
func visit(t *testing.T, img v1.Image, do func(*tar.Header, io.Reader)) {
	t.Helper()
	in := mutate.Extract(img)
	defer func() { _ = in.Close() }()
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(header, archive)
	}
}

func TestContents(t *testing.T) {
	built := build(t, options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))}))
	base := map[string]string{
		"etc": "5 755 0:0", "etc/ssl": "5 755 0:0", "etc/ssl/certs": "5 755 0:0", bundlePath: "0 644 0:0", "etc/passwd": "0 644 0:0",
		"etc/group": "0 644 0:0", "etc/nsswitch.conf": "0 644 0:0", "etc/drover-release": "0 644 0:0", "tmp": "5 1777 0:0",
		"licenses": "5 755 0:0", "licenses/LICENSE": "0 644 0:0", "licenses/THIRD_PARTY_NOTICES": "0 644 0:0",
		"home": "5 755 0:0", "home/nonroot": "5 700 65532:65532", "root": "5 700 0:0",
	}
	for name, want := range map[string]struct {
		files map[string]string
		user  string
		runs  []string
	}{
		"hub": {map[string]string{"opt": "5 755 0:0", "opt/drover": "5 755 0:0", "opt/drover/hub": "0 755 0:0",
			"opt/drover/system-agent-amd64": "0 755 0:0", "opt/drover/system-agent-arm64": "0 755 0:0"},
			"65532:65532", []string{"/opt/drover/hub", "serve"}},
		"system-agent": {map[string]string{"opt": "5 755 0:0", "opt/drover": "5 755 0:0", "opt/drover/system-agent": "0 755 0:0"},
			"0:0", []string{"/opt/drover/system-agent", "upgrade-node"}},
		"cluster-agent": {map[string]string{"system-agent": "0 755 0:0"}, "65532:65532", []string{"/system-agent", "cluster"}},
	} {
		for path, mode := range base {
			want.files[path] = mode
		}
		for _, img := range built[name].Architectures {
			if diff := cmp.Diff(want.files, files(t, img)); diff != "" {
				t.Errorf("files of %s for %s (-want +got):\n%s", name, img.Arch, diff)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			runs := slices.Concat(config.Config.Entrypoint, config.Config.Cmd)
			got := []any{config.Architecture, config.OS, config.Config.User, runs, config.Created.Time}
			if diff := cmp.Diff([]any{img.Arch, "linux", want.user, want.runs, created}, got); diff != "" {
				t.Errorf("configuration of %s for %s (-want +got):\n%s", name, img.Arch, diff)
			}
		}
	}
	if got := files(t, built["system-agent-installer-k3s"].Architectures[0]); got["run.sh"] == "" || got["k3s"] == "" || len(got) != 5 {
		t.Errorf("files of the installer: %v", got)
	}
}

// TestLicenses looks for the texts of Drover and of what is compiled into its programs.
func TestLicenses(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	opts.Releases = nil
	for name, built := range build(t, opts) {
		for _, img := range built.Architectures {
			texts := map[string]string{}
			visit(t, img, func(header *tar.Header, content io.Reader) {
				raw, err := io.ReadAll(content)
				if err != nil {
					t.Fatal(err)
				}
				texts[header.Name] = string(raw)
			})
			if got := texts["licenses/LICENSE"]; got != "license of Drover\n" {
				t.Errorf("the license of Drover in %s for %s is %q", name, img.Arch, got)
			}
			if got := texts["licenses/THIRD_PARTY_NOTICES"]; !strings.Contains(got, "\nGo standard library "+runtime.Version()+" (LICENSE)\n") {
				t.Errorf("the license of Go is not in %s for %s:\n%s", name, img.Arch, got)
			}
		}
	}
}

func TestAnnotations(t *testing.T) {
	built := build(t, options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))}))
	want := map[string]string{
		"org.opencontainers.image.title":       "Drover hub",
		"org.opencontainers.image.description": "Turns machines into RKE2 and k3s clusters and manages them",
		"org.opencontainers.image.version":     "v1.2.3+rc1",
		"org.opencontainers.image.revision":    strings.Repeat("a", 40),
		"org.opencontainers.image.source":      "https://github.com/drover-dev/drover",
		"org.opencontainers.image.created":     "2026-01-02T03:04:05Z",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.base.name":   "scratch",
	}
	index, err := built["hub"].Index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, index.Annotations); diff != "" {
		t.Errorf("annotations of the index (-want +got):\n%s", diff)
	}
	for i, arch := range layout.Architectures {
		if platform := index.Manifests[i].Platform; platform.OS != "linux" || platform.Architecture != arch {
			t.Errorf("manifest %d is for %s", i, platform)
		}
		manifest, err := built["hub"].Architectures[i].Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, manifest.Annotations); diff != "" {
			t.Errorf("annotations for %s (-want +got):\n%s", arch, diff)
		}
	}
}

func TestFileOutputs(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	opts.Only = []string{"hub"}
	opts.Releases = nil
	hub := build(t, opts)["hub"]
	dir := t.TempDir()
	written, err := hub.WriteLayout(filepath.Join(dir, "layouts"))
	if err != nil {
		t.Fatal(err)
	}
	path, err := ocilayout.ImageIndexFromPath(written)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	// The image, and a document for each architecture.
	if digest, _ := hub.Index.Digest(); len(top.Manifests) != 3 || top.Manifests[0].Digest != digest {
		t.Errorf("the layout has %+v, want %s", top.Manifests, digest)
	}
	files, err := hub.WriteTarballs(context.Background(), filepath.Join(dir, "tarballs"))
	if err != nil || len(files) != 2 || filepath.Base(files[1]) != "hub-v1.2.3-rc1-linux-arm64.tar" {
		t.Fatalf("tarballs %v, %v", files, err)
	}
	img, err := tarball.ImageFromPath(files[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := img.ConfigFile(); err != nil || config.Architecture != "arm64" {
		t.Errorf("the second tarball is for %+v, %v", config, err)
	}
	if manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(files[0]) }); err != nil ||
		len(manifest) != 1 || !cmp.Equal(manifest[0].RepoTags, []string{"drover/hub:v1.2.3-rc1"}) {
		t.Errorf("the first tarball has %+v, %v", manifest, err)
	}
}

func TestProgramsThatWouldNotStart(t *testing.T) {
	good := binaries(t)
	amd64, err := os.ReadFile(filepath.Join(good, "linux-amd64/hub"))
	if err != nil {
		t.Fatal(err)
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	host := hostArchitecture(t)
	for _, test := range []struct{ file, content, want string }{
		{"linux-arm64/hub", string(amd64), "program is for EM_X86_64, not for arm64"},
		{"linux-" + host + "/hub", string(shell), "program needs a dynamic linker, which the images do not have: build it with CGO_ENABLED=0"},
		{"linux-amd64/hub", "#!/bin/sh\n", "not a program for Linux"},
		{"linux-arm64/system-agent", "", "build the programs with make cross"},
	} {
		opts := options(t, t.TempDir(), Certificates{PEM: []byte(authority(t, "public"))})
		if err := os.CopyFS(opts.Binaries, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(opts.Binaries, test.file)
		if write(t, file, test.content); test.content == "" {
			_ = os.Remove(file)
		}
		if _, err := Build(context.Background(), opts); err == nil || !strings.Contains(err.Error(), test.want) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("error is %v\nwant %q and %s", err, test.want, file)
		}
	}
}
