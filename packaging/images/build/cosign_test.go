//go:build published

package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// TestPublishedCosign: cosign makes a key, and verifies the images and files that were signed with it as docs/images.md and
// docs/versions.md say; nothing that is signed with another key, or not at all.
func TestPublishedCosign(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "the password of the key")
	key, public := cosignKey(t)
	_, other := cosignKey(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	push := func(version string, args ...string) string {
		args = append([]string{license, "--from", programs(t), "--only", "system-agent", "--version", version, "--arch", runtime.GOARCH,
			"--ca-certificates", bundle(t), "--push", host}, args...)
		if _, errs, err := run(t, args...); err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		return host + "/drover/system-agent:" + version
	}
	verify := func(public, image string) error {
		return cosign(t, "verify", "--key", public, "--insecure-ignore-tlog=true", image)
	}
	signed, unsigned := push("v1.0.0", "--sign-key", key), push("v2.0.0")
	if err := verify(public, signed); err != nil {
		t.Errorf("cosign refuses the image: %v", err)
	}
	for name, err := range map[string]error{
		"an image signed with another key": verify(other, signed), "an unsigned image": verify(public, unsigned),
	} {
		if err == nil {
			t.Errorf("cosign accepts %s", name)
		}
	}

	file := filepath.Join(t.TempDir(), "sha256sums.txt")
	if err := os.WriteFile(file, []byte("content of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := run(t, "sign-blob", "--key="+key, file); err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	verifyBlob := func(public string) error {
		return cosign(t, "verify-blob", "--key", public, "--signature", file+".sig", "--insecure-ignore-tlog=true", file)
	}
	if err := verifyBlob(public); err != nil {
		t.Errorf("cosign refuses the file: %v", err)
	}
	if err := verifyBlob(other); err == nil {
		t.Error("cosign accepts a file signed with another key")
	}
	if err := os.WriteFile(file, []byte("other content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verifyBlob(public); err == nil {
		t.Error("cosign accepts other content")
	}
}

// cosignKey makes a pair of keys, and returns their files.
func cosignKey(t *testing.T) (private, public string) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "cosign")
	if err := cosign(t, "generate-key-pair", "--output-key-prefix", prefix); err != nil {
		t.Fatal(err)
	}
	return prefix + ".key", prefix + ".pub"
}

// cosign runs the program that "make bin/cosign" builds.
func cosign(t *testing.T, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "..", "bin", "cosign"), args...)
	out, err := cmd.CombinedOutput()
	t.Logf("cosign %s: %v\n%s", args[0], err, out)
	return err
}
