package clusterctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is upstream's clusterctl, of the version of Cluster API that the hub uses.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "drover-clusterctl-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		program = filepath.Join(dir, "clusterctl")
		build := exec.Command("go", "build", "-o", program, "sigs.k8s.io/cluster-api/cmd/clusterctl")
		build.Dir, build.Env = "../../tools/clusterctl", append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = build.Run()
	}
	if err != nil {
		os.Stderr.WriteString("building clusterctl: " + err.Error() + "\n")
		return 1
	}
	return m.Run()
}

const (
	version    = "v0.1.0"
	clusterAPI = "v1.14.2"
)

// repository is a bundle that a user has unpacked.
type repository struct{ dir, config string }

// unpack unpacks the archive of a version, and of more versions over it.
func unpack(t *testing.T, versions ...string) *repository {
	t.Helper()
	dir := t.TempDir()
	for _, version := range versions {
		files, err := Repository(Release{Version: version, ClusterAPI: clusterAPI})
		if err != nil {
			t.Fatal(err)
		}
		var archive bytes.Buffer
		if err := WriteArchive(&archive, files, time.Unix(1700000000, 0)); err != nil {
			t.Fatal(err)
		}
		extract(t, &archive, dir)
	}
	return &repository{dir: filepath.Join(dir, directory), config: "clusterctl.yaml"}
}

func extract(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	compressed, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// try runs clusterctl with variables such as A=b in its environment and without a network, and returns what it prints.
func (r *repository) try(t *testing.T, variables []string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, append(args, "--config", filepath.Join(r.dir, r.config))...)
	command.Env = append(slices.Clone(variables), "CLUSTERCTL_REPOSITORY_PATH="+r.dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
		"XDG_CONFIG_HOME="+t.TempDir(), "HOME="+t.TempDir(), "KUBECONFIG=/nonexistent", "HTTPS_PROXY=http://127.0.0.1:1")
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if err != nil {
		return errs.String(), err
	}
	return out.String(), nil
}

func (r *repository) run(t *testing.T, variables []string, args ...string) string {
	t.Helper()
	out, err := r.try(t, variables, args...)
	if err != nil {
		t.Fatalf("clusterctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}
