package cli

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// agents is a folder as "make agent" leaves it, and one of certificates.
func agents(t *testing.T) (folder, certificates string) {
	t.Helper()
	folder = t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"system-agent-amd64", "system-agent-arm64"} {
		write(name, "program "+name)
		write(name+".sha256", fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte("program "+name)), name))
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	write("empty.pem", "none")
	return folder, filepath.Join(folder, "ca.pem")
}

func TestBuildClusterAgent(t *testing.T) {
	folder, certificates := agents(t)
	file := filepath.Join(t.TempDir(), "out.tar")
	args := []string{"build", "cluster-agent", "--version=v1.2.3+dirty", "--from=" + folder, "--ca-certificates=" + certificates}
	out, _, err := run(t, append(args, "--tarball="+file)...)
	if want := file + ": drover/cluster-agent:v1.2.3-dirty\n"; err != nil || out != want {
		t.Fatalf("output is %q, %v; want %q", out, err, want)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := []any{config.Architecture, config.Config.Entrypoint, config.Config.Cmd, config.Config.User, config.Config.Env}
	if diff := cmp.Diff([]any{"amd64", []string{"/system-agent"}, []string{"cluster"}, "65532:65532", []string(nil)}, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	files := map[string]int64{}
	content := mutate.Extract(img)
	defer content.Close()
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = header.Mode
	}
	if diff := cmp.Diff(map[string]int64{"system-agent": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestBuildClusterAgentForAllArchitectures(t *testing.T) {
	folder, _ := agents(t)
	dir := filepath.Join(t.TempDir(), "layout")
	args := []string{"build", "cluster-agent", "--version=v1.2.3", "--from=" + folder, "--arch=amd64,arm64", "--oci-layout=" + dir}
	first, _, err := run(t, args...)
	if want := dir + ":v1.2.3@sha256:"; err != nil || !strings.HasPrefix(first, want) {
		t.Fatalf("output is %q, %v; want %q", first, err, want)
	}
	if second, _, err := run(t, args...); err != nil || second != first {
		t.Errorf("again: %q, %v; want %q", second, err, first)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := index.IndexManifest()
	if err != nil || len(outer.Manifests) != 1 {
		t.Fatalf("%+v, %v", outer, err)
	}
	image, err := index.ImageIndex(outer.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 || manifest.Manifests[0].Platform.Architecture != "amd64" ||
		manifest.Manifests[1].Platform.Architecture != "arm64" {
		t.Errorf("%+v, %v", manifest, err)
	}
}

func TestBuildClusterAgentExplainsWhatIsWrong(t *testing.T) {
	folder, _ := agents(t)
	good := []string{"build", "cluster-agent", "--version=v1.2.3", "--from=" + folder, "--oci-layout=" + filepath.Join(t.TempDir(), "out")}
	for name, change := range map[string]func(folder string){
		"system-agent: checksum mismatch": func(folder string) {
			_ = os.WriteFile(filepath.Join(folder, "system-agent-amd64"), []byte("other"), 0o600)
		},
		"system-agent-amd64 is not listed in system-agent-amd64.sha256": func(folder string) {
			_ = os.Rename(filepath.Join(folder, "system-agent-arm64.sha256"), filepath.Join(folder, "system-agent-amd64.sha256"))
		},
		"collecting the agent for amd64": func(folder string) { _ = os.Remove(filepath.Join(folder, "system-agent-amd64.sha256")) },
	} {
		broken, _ := agents(t)
		change(broken)
		if _, _, err := run(t, append(good[:5:5], "--from="+broken)...); err == nil ||
			!strings.Contains(strings.ReplaceAll(err.Error(), "system-agent does", "system-agent-amd64 does"), name) {
			t.Errorf("%v; want %q", err, name)
		}
	}
	for _, test := range []struct{ arg, want string }{
		{"--version=", `--version: "" is not valid as an image tag`},
		{"--version=v 1", `--version: "v 1" is not valid as an image tag`},
		{"--arch=x86", `--arch: unknown architecture "x86"`},
		{"--ca-certificates=" + filepath.Join(folder, "empty.pem"), "--ca-certificates: no certificate found in "},
		{"--ca-certificates=/does/not/exist", "--ca-certificates: "},
		{"--tarball=x.tar", "specify exactly one of"},
	} {
		if _, _, err := run(t, append(good[:5:5], test.arg)...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s gives %v, want %q", test.arg, err, test.want)
		}
	}
}
