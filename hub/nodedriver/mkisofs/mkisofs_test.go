package mkisofs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"github.com/drover-dev/drover/hub/nodedriver/mkisofs"
)

// TestImage writes an image with the arguments of rancher-machine's driver for vSphere.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	data, image := filepath.Join(dir, "data"), filepath.Join(dir, "user-data.iso")
	want := map[string]string{"user-data": "#cloud-config\n" + strings.Repeat("# more than a block\n", 5000), "meta-data": "local-hostname: a\n"}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if err := os.WriteFile(filepath.Join(data, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	args := []string{"-J", "-r", "-hfs", "-iso-level", "1", "-V", "cidata", "-output", image, "-graft-points", data}
	for range 2 { // it replaces what an earlier attempt has left
		if code := mkisofs.Main(args, &stderr); code != 0 {
			t.Fatal(code, stderr.String())
		}
	}
	written, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = written.Close() }()
	info, err := written.Stat()
	if err != nil {
		t.Fatal(err)
	}
	cd, err := iso9660.Read(file.New(written, true), info.Size(), 0, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if label := strings.TrimRight(cd.Label(), "\x00 "); label != "cidata" || info.Mode().Perm() != 0o600 {
		t.Errorf("label %q, mode %o", label, info.Mode().Perm())
	}
	for name, content := range want {
		if got, err := cd.ReadFile(name); err != nil || string(got) != content {
			t.Errorf("%s has %d bytes, %v", name, len(got), err)
		}
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no output":    {[]string{dir}, "-output"},
		"no directory": {[]string{"-o", dir + "/a"}, "directory"},
		"unknown flag": {[]string{"-o", dir + "/a", "-boot", dir}, "boot"},
		"not there":    {[]string{"-o", dir + "/a", dir + "/b"}, "no such file"},
		"not writable": {[]string{"-o", dir + "/b/a", dir}, "no such file"},
	} {
		var stderr bytes.Buffer
		if code := mkisofs.Main(tc.args, &stderr); code == 0 || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%s: %d %s", name, code, stderr.String())
		}
	}
}
