package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSBOM(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "hub-v1.2.3-linux-arm64.tar.gz")
	if out, err := exec.Command("tar", "-czf", file, "-C", dir, "LICENSE").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, _, err := run(t, "sbom", "--version=v1.2.3", file); err != nil || out != file+".spdx.json\n" {
		t.Fatalf("output %q, %v", out, err)
	}
	raw, err := os.ReadFile(file + ".spdx.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name": "hub v1.2.3 linux/arm64"`, `"created": "2023-11-14T22:13:20Z"`, `"packageFileName": "/LICENSE"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%s is missing in\n%s", want, raw)
		}
	}
	if _, _, err := run(t, "sbom", "--version=v1.2.4", file); err == nil || !strings.Contains(err.Error(), "NAME-v1.2.4-linux-ARCH.tar.gz") {
		t.Errorf("with another version: %v", err)
	}
	if _, _, err := run(t, "sbom", "--version=v1.2.3", filepath.Join(dir, "LICENSE")); err == nil {
		t.Error("a file that is no archive is listed")
	}
}
