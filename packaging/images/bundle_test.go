package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// unpackBundle writes the files of a bundle into a new directory, and returns it with their names in the order of the bundle.
func unpackBundle(t *testing.T, file string) (dir string, names []string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root.Name(), names
		}
		if err == nil {
			err = writeFrom(root, header, archive)
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Mode != 0o644 || header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(created) {
			t.Errorf("%s has mode %o, owner %d:%d, time %s", header.Name, header.Mode, header.Uid, header.Gid, header.ModTime)
		}
		names = append(names, header.Name)
	}
}

func TestBundle(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	built, err := Build(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dist/images.tar")
	if err := WriteBundle(context.Background(), file, built, created, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	dir, names := unpackBundle(t, file)
	if !slices.Equal(names[:2], []string{"oci-layout", "index.json"}) || !slices.IsSorted(names[2:]) {
		t.Errorf("the files of the bundle are %v", names)
	}
	index, err := ocilayout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	// Every digest, also those of layers and their contents.
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for i, descriptor := range manifest.Manifests {
		ref := descriptor.Annotations["org.opencontainers.image.ref.name"]
		if found = append(found, ref); descriptor.Annotations["io.containerd.image.name"] != ref {
			t.Errorf("annotations of %s: %v", ref, descriptor.Annotations)
		}
		if digest, err := built[i].Index.Digest(); err != nil || descriptor.Digest != digest {
			t.Errorf("%s has digest %s, want %s, %v", ref, descriptor.Digest, digest, err)
		}
		one, err := index.ImageIndex(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		for _, arch := range opts.Architectures {
			checkPlatform(t, one, ref, arch)
		}
	}
	want := []string{"docker.io/drover/hub:v1.2.3-rc1", "docker.io/drover/system-agent:v1.2.3-rc1",
		"docker.io/drover/cluster-agent:v1.2.3-rc1",
		"docker.io/rancher/system-agent-installer-k3s:v1.36.3-k3s1", "docker.io/rancher/system-agent-installer-rke2:v1.36.3-rke2r1"}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

// checkPlatform checks that an index has an image for an architecture, with the files of the program.
func checkPlatform(t *testing.T, index v1.ImageIndex, ref, arch string) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == arch })
	if i < 0 {
		t.Errorf("%s is not for %s: %+v", ref, arch, manifest.Manifests)
		return
	}
	img, err := index.Image(manifest.Manifests[i].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := img.ConfigFile(); err != nil || config.Architecture != arch || len(files(t, img)) == 0 {
		t.Errorf("%s for %s: %+v, %v", ref, arch, config, err)
	}
}

func TestBundleIsReproducible(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	var bundles [][]byte
	for range 2 {
		opts.TempDir = t.TempDir()
		built, err := Build(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "images.tar")
		if err := WriteBundle(context.Background(), file, built, created, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		bundles = append(bundles, raw)
	}
	if !bytes.Equal(bundles[0], bundles[1]) {
		t.Error("two bundles of the same programs differ")
	}
}

// A bundle that cannot be completed leaves nothing behind, neither a part of it nor temporary files.
func TestInterruptedBundle(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	opts.Only, opts.Releases = []string{"cluster-agent"}, nil
	built, err := Build(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	dir, temp := t.TempDir(), t.TempDir()
	if err := WriteBundle(ctx, filepath.Join(dir, "images.tar"), built, created, temp); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	for _, dir := range []string{dir, temp} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", dir, left, err)
		}
	}
}
