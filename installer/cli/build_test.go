package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// run runs the command and returns its two outputs.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, notes bytes.Buffer
	cmd := NewCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(context.Background())
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("temporary files are left: %v", left)
	}
	return out.String(), notes.String(), err
}

func release(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"k3s": "program", "install.sh": "script", "sha256sum-amd64.txt": fmt.Sprintf("%x  k3s\n", sha256.Sum256([]byte("program"))),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBuildPushes(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	args := []string{"build", "--runtime=k3s", "--version=v1.36.3+k3s1", "--from=" + release(t), "--insecure",
		"--push=" + host + "/rancher/system-agent-installer-k3s"}
	first, note, err := run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^` + regexp.QuoteMeta(host) +
		`/rancher/system-agent-installer-k3s:v1\.36\.3-k3s1@sha256:[0-9a-f]{64}\n$`).MatchString(first) {
		t.Errorf("output is %q", first)
	}
	if !strings.HasPrefix(note, "Note: install.sh is not listed in sha256sum-amd64.txt; its sha256 is ") {
		t.Errorf("note is %q", note)
	}
	if second, _, err := run(t, args...); err != nil || second != first {
		t.Errorf("again: %q, %v; want %q", second, err, first)
	}
}

func TestBuildWritesFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out.tar")
	out, _, err := run(t, "build", "--runtime=k3s", "--version=v1.36.3+k3s1", "--from="+release(t), "--tarball="+file)
	if want := file + ": rancher/system-agent-installer-k3s:v1.36.3-k3s1\n"; err != nil || out != want {
		t.Errorf("output is %q, %v; want %q", out, err, want)
	}
	layout := filepath.Join(dir, "layout")
	out, _, err = run(t, "build", "--runtime=k3s", "--version=v1.36.3+k3s1", "--from="+release(t), "--oci-layout="+layout)
	if want := layout + ":v1.36.3-k3s1@sha256:"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("output is %q, %v; want %q", out, err, want)
	}
}

func TestBuildExplainsWrongFlags(t *testing.T) {
	dir := release(t)
	good := []string{"build", "--runtime=k3s", "--version=v1.36.3+k3s1", "--from=" + dir}
	layout := "--oci-layout=" + filepath.Join(t.TempDir(), "out")
	for _, test := range []struct {
		args []string
		want string
	}{
		{args: []string{"build"}, want: `required flag(s) "from", "runtime", "version" not set`},
		{args: good, want: "specify exactly one of --push, --oci-layout and --tarball"},
		{args: append(good[:4:4], layout, "--push=a/b"), want: "specify exactly one of"},
		{args: append(good[:4:4], layout, "--runtime=k8s"), want: `--runtime: must be k3s or rke2, got "k8s"`},
		{args: append(good[:4:4], layout, "--version=1.36"), want: `--version: version "1.36" must have the form v1.36.3+k3s1`},
		{args: append(good[:4:4], layout, "--arch=amd64,x86"), want: `--arch: unknown architecture "x86": use amd64, arm64 or both`},
		{args: append(good[:4:4], layout, "--arch=amd64,amd64"), want: "--arch: duplicate architecture amd64"},
		{args: append(good[:4:4], layout, "--images=some"), want: `--images: must be auto, always or never, got "some"`},
		{args: append(good[:4:4], layout, "--insecure"), want: "--insecure needs --push"},
		{args: append(good[:4:4], layout, "--install-script-sha256=abc"), want: "--install-script-sha256: must be 64 hexadecimal digits"},
		{args: append(good[:4:4], layout, "--install-script=https://example.com/install.sh"),
			want: "--install-script: a script from a URL needs --install-script-sha256 too"},
		{args: append(good[:4:4], layout, "--from=http://example.com"),
			want: "--from: http://example.com: must be an https URL, since the checksums come from there too"},
		{args: append(good[:4:4], "--tarball=x.tar", "--arch=amd64,arm64"), want: "--tarball supports one architecture only"},
		{args: append(good[:4:4], "--tarball=/does/not/exist/x.tar"), want: "--tarball: directory /does/not/exist does not exist"},
		{args: append(good[:4:4], "--push=UPPER/case"), want: "--push: "},
		{args: append(good[:4:4], "--push=a/b@sha256:"+strings.Repeat("0", 64)), want: "must not have a digest, which the build determines"},
	} {
		if _, _, err := run(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v\n gives %v\n want %q", test.args, err, test.want)
		}
	}
}
