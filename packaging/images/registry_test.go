package images

import (
	"archive/tar"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve returns the address of a registry, which has the API of referrers or has not.
func serve(t *testing.T, referrers bool) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrers)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func push(t *testing.T, img Image, address string) name.Tag {
	t.Helper()
	ref, err := img.Reference(address, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := img.Push(context.Background(), ref, nil); err != nil {
		t.Fatal(err)
	}
	return ref
}

// unpack writes the files of an image below a new directory.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	in := mutate.Extract(img)
	defer func() { _ = in.Close() }()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root.Name()
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir {
			err = root.MkdirAll(header.Name, 0o755)
		} else {
			err = writeFrom(root, header, archive)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeFrom(root *os.Root, header *tar.Header, in io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, header.FileInfo().Mode())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// The hub is the real one, of this machine's architecture; the agents beside it are not run.
func TestPulledHubRuns(t *testing.T) {
	host := hostArchitecture(t)
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	opts.Only, opts.Releases, opts.Architectures = []string{"hub"}, nil, []string{host}
	compile(t, "../..", host, filepath.Join(opts.Binaries, "linux-"+host, "hub"), "./hub")
	ref := push(t, build(t, opts)["hub"], serve(t, true))

	pulled, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: host}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := unpack(t, pulled)
	cmd := exec.Command(filepath.Join(root, config.Config.Entrypoint[0]), "version")
	cmd.Env = config.Config.Env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "hub dev linux/"+host) {
		t.Errorf("hub version prints %q, %v", out, err)
	}
	for _, agent := range []string{"system-agent-amd64", "system-agent-arm64"} {
		if _, err := os.Stat(filepath.Join(root, "opt/drover", agent)); err != nil {
			t.Error(err)
		}
	}
}

func TestDocumentsAreReferrers(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public")), Version: "20230311"})
	opts.Only = []string{"hub"}
	opts.Releases = opts.Releases[:1]
	built := build(t, opts)
	for _, api := range []bool{true, false} {
		address := serve(t, api)
		for _, img := range built {
			ref := push(t, img, address)
			for n, one := range img.Architectures {
				digest, err := one.Digest()
				if err != nil {
					t.Fatal(err)
				}
				index, err := remote.Referrers(ref.Context().Digest(digest.String()))
				if err != nil {
					t.Fatal(err)
				}
				manifest, err := index.IndexManifest()
				if err != nil || len(manifest.Manifests) != 1 {
					t.Fatalf("referrers of %s for %s: %+v, %v", img.Name, one.Arch, manifest, err)
				}
				artifact, err := remote.Image(ref.Context().Digest(manifest.Manifests[0].Digest.String()))
				if err != nil {
					t.Fatal(err)
				}
				// The index of this registry has another type, by a draft of the specification.
				if about, err := artifact.Manifest(); err != nil || about.ArtifactType != "application/spdx+json" ||
					about.Subject == nil || about.Subject.Digest != digest {
					t.Errorf("the artifact of %s for %s is %+v, %v", img.Name, one.Arch, about, err)
				}
				if got := onlyLayer(t, artifact); string(got) != string(img.Documents[n].SPDX) {
					t.Errorf("the document of %s for %s is %s", img.Name, one.Arch, got)
				}
			}
		}
	}
	var listed struct {
		Packages []struct{ Name, PackageFileName string }
	}
	if err := json.Unmarshal(built["system-agent-installer-k3s"].Documents[1].SPDX, &listed); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range listed.Packages {
		names[p.PackageFileName] = true
	}
	if !names["/k3s"] || !names["/run.sh"] || !names["/installer.sh"] {
		t.Errorf("the document of the installer lists %v", names)
	}
}

func onlyLayer(t *testing.T, img v1.Image) []byte {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	in, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	raw, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestEverythingIsSigned(t *testing.T) {
	opts := options(t, binaries(t), Certificates{PEM: []byte(authority(t, "public"))})
	opts.Only, opts.Releases = []string{"cluster-agent"}, nil
	img := build(t, opts)["cluster-agent"]
	ref := push(t, img, serve(t, true))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if err := img.Sign(context.Background(), key, ref); err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(ref.Context())
	if err != nil {
		t.Fatal(err)
	}
	signatures := 0
	for _, tag := range tags {
		if strings.HasSuffix(tag, ".sig") {
			signatures++
		}
	}
	// The index, and image and document of each architecture.
	if signatures != 5 {
		t.Errorf("tags: %v", tags)
	}
}
