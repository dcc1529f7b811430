package oci

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// listing is what the only layer of an image has, in its order.
func listing(t *testing.T, img v1.Image) []string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	var found []string
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s %c %o %d:%d %d %s", h.Name, h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), content))
	}
}

func TestEntries(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "source"), []byte("from disk"), 0o600); err != nil {
		t.Fatal(err)
	}
	home := Directory("home/user", 0o700)
	home.UID, home.GID = 65532, 65533
	entries := []Entry{
		Directory("tmp", 0o1777), home, OnDisk("home/program", 0o755, filepath.Join(dir, "source"), 9), Directory("home", 0o755),
		InMemory("empty", 0o644, nil),
	}
	for name, test := range map[string]struct {
		created time.Time
		want    string
	}{
		"default time": {time.Time{}, "0"},
		"given time":   {time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)), "1767319445"},
	} {
		builder := Builder{Dir: t.TempDir(), Created: test.created}
		img, err := builder.Image(context.Background(), "arm64", v1.Config{}, []Layer{{Entries: entries}, {Comment: "no entries"}})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"empty 0 644 0:0 " + test.want + " ", "home/ 5 755 0:0 " + test.want + " ", "home/program 0 755 0:0 " + test.want + " from disk",
			"home/user/ 5 700 65532:65533 " + test.want + " ", "tmp/ 5 1777 0:0 " + test.want + " ",
		}
		if diff := cmp.Diff(want, listing(t, img)); diff != "" {
			t.Errorf("%s: entries (-want +got):\n%s", name, diff)
		}
		config, err := img.ConfigFile()
		if err != nil || fmt.Sprint(config.Created.Unix()) != test.want {
			t.Errorf("%s: the image was created at %v, %v", name, config.Created, err)
		}
	}
}

func TestLayerErrors(t *testing.T) {
	wrong := InMemory("file", 0o644, []byte("content"))
	wrong.Checksum, wrong.ChecksumSource = strings.Repeat("0", 64), "a test"
	for want, entries := range map[string][]Entry{
		"packing a: the layer has two entries of this path": {InMemory("a", 0o644, nil), Directory("a", 0o755)},
		"file: checksum mismatch: got SHA-256 ":             {wrong},
		"packing longer: the file changed during the build: got 0 bytes, want 10": {
			OnDisk("longer", 0o644, "/dev/null", 10), InMemory("next", 0o644, nil),
		},
		"packing missing: ": {OnDisk("missing", 0o644, "/does/not/exist", 10)},
	} {
		dir := t.TempDir()
		_, err := Builder{Dir: dir}.Image(context.Background(), "amd64", v1.Config{}, []Layer{{Entries: entries}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: the directory has %v", want, left)
		}
	}
}
