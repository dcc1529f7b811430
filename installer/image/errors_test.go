package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/installer/artifact"
)

func TestErrorsNameTheFile(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(t *testing.T, dir string, opts *Options)
		want string
	}{
		{name: "another program than the checksum's",
			edit: func(t *testing.T, dir string, _ *Options) { write(t, filepath.Join(dir, "k3s"), "evil") },
			want: "k3s: checksum mismatch: got SHA-256 "},
		{name: "other container images than the checksum's",
			edit: func(t *testing.T, dir string, _ *Options) {
				write(t, filepath.Join(dir, "k3s-airgap-images-amd64.tar"), "evil")
			},
			want: "k3s-airgap-images-amd64.tar: checksum mismatch"},
		{name: "program without a line", edit: func(t *testing.T, dir string, _ *Options) {
			write(t, filepath.Join(dir, "sha256sum-amd64.txt"), strings.Repeat("a", 64)+"  other\n")
		}, want: "k3s is not listed in sha256sum-amd64.txt"},
		{name: "no program", edit: func(t *testing.T, dir string, _ *Options) { remove(t, dir, "k3s") }, want: "k3s: not found in "},
		{name: "no checksums", edit: func(t *testing.T, dir string, _ *Options) { remove(t, dir, "sha256sum-amd64.txt") },
			want: "the checksums of the release: sha256sum-amd64.txt: not found in "},
		{name: "no install script", edit: func(t *testing.T, dir string, _ *Options) { remove(t, dir, "install.sh") },
			want: "reading the install script of the release (use --install-script for another one): install.sh: not found in "},
		{name: "no container images", edit: func(t *testing.T, dir string, opts *Options) {
			remove(t, dir, "k3s-airgap-images-amd64.tar")
			opts.Images = ImagesAlways
		}, want: "any of k3s-airgap-images-amd64.tar.zst, k3s-airgap-images-amd64.tar.gz, k3s-airgap-images-amd64.tar"},
		{name: "another install script than was vouched for", edit: func(_ *testing.T, _ string,
			opts *Options) {
			opts.ScriptChecksum = strings.Repeat("0", 64)
		},
			want: "installer.sh: checksum mismatch"},
		{name: "checksums of another name", edit: func(_ *testing.T, _ string, opts *Options) { opts.Checksums = "sums-{arch}" },
			want: "sums-amd64: not found in "},
		{name: "further images of a strange name", edit: func(_ *testing.T, _ string,
			opts *Options) {
			opts.AdditionalImages = []string{"calico.tar"}
		},
			want: `calico.tar: the name of an archive of container images must contain "images" and "amd64.tar"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := release(t, k3sRelease())
			opts := options(t, dir, "amd64")
			test.edit(t, dir, &opts)
			_, err := Build(context.Background(), opts)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v\nwant %q in it", err, test.want)
			}
		})
	}
}

func TestImagesCanBeLeftOut(t *testing.T) {
	opts := options(t, release(t, k3sRelease()), "amd64")
	opts.Images = ImagesNever
	images, _ := build(t, opts)
	if _, ok := content(t, images[0])["k3s-airgap-images-amd64.tar"]; ok {
		t.Error("container images are in the image")
	}
}

func TestReleaseOnAServer(t *testing.T) {
	dir := release(t, k3sRelease())
	requests := map[string]int{}
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests[strings.TrimPrefix(r.URL.Path, "/")]++
		files.ServeHTTP(w, r)
	}))
	defer server.Close()
	opts := options(t, dir, "amd64", "arm64")
	source, err := artifact.Open(server.URL, artifact.Options{TempDir: opts.TempDir, Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	opts.Source = source
	_, err = Build(context.Background(), opts)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(k3sRelease()["install.sh"])))
	if want := "read the script, then pass --install-script-sha256=" + sum; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("an install script nobody vouches for gives %v\nwant %q", err, want)
	}
	opts.ScriptChecksum = sum
	images, _ := build(t, opts)
	if _, ok := content(t, images[0])["k3s-airgap-images-amd64.tar"]; ok {
		t.Error("container images were downloaded although nobody asked for them")
	}
	for name, count := range requests {
		if count != 1 {
			t.Errorf("%s was downloaded %d times", name, count)
		}
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
