package sbom

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGenerateArchive(t *testing.T) {
	program, err := os.ReadFile(compile(t))
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	compressed := gzip.NewWriter(&raw)
	archive := tar.NewWriter(compressed)
	for _, f := range []struct {
		header  tar.Header
		content []byte
	}{
		{tar.Header{Name: "program-v1/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "program-v1/program", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}, program},
		{tar.Header{Name: "program-v1/LICENSE", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}, []byte("text")},
	} {
		if err := archive.WriteHeader(&f.header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program.tar.gz")
	if err := os.WriteFile(file, raw.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got := decode(t)(GenerateArchive(Archive{Name: "programs", File: file, Subject: subject}))
	root := find(t, got, "programs")
	if root.Purpose != "ARCHIVE" || root.References[0].Locator != "pkg:generic/programs@v1.2.3%2Brc1?arch=amd64" {
		t.Errorf("the archive is %+v", root)
	}
	id := func(name string) string { return find(t, got, name).ID }
	want := []relationship{
		{documentID, describes, root.ID}, {root.ID, contains, id("LICENSE")}, {root.ID, contains, id("program")},
		{id("program"), dependsOn, id("stdlib")}, {id("program"), dependsOn, id("example.com/library")},
	}
	if diff := cmp.Diff(want, got.Relationships); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
	if got := find(t, got, "program").FileName; got != "/program-v1/program" {
		t.Errorf("the program is %s", got)
	}
	if err := os.WriteFile(file, raw.Bytes()[:raw.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := GenerateArchive(Archive{Name: "programs", File: file, Subject: subject}); err == nil {
		t.Error("half an archive is listed")
	}
}
