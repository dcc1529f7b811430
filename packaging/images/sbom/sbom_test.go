package sbom

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/installer/oci"
)

// generate returns the document of an image with a program, a bundle of certificates and a file.
func generate(t *testing.T, program string) (document, v1.Image) {
	t.Helper()
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	img, err := oci.Builder{Dir: t.TempDir()}.Image(context.Background(), "amd64", v1.Config{}, []oci.Layer{{Entries: []oci.Entry{
		oci.Directory("usr", 0o755), oci.OnDisk("usr/program", 0o755, program, info.Size()), oci.InMemory(bundle, 0o644, []byte("pem")),
		oci.InMemory("empty", 0o644, nil),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return decode(t)(Generate(Image{Image: img.Image, Repository: "drover/hub", Subject: subject})), img.Image
}

// subject is what documents of tests are about.
var subject = Subject{Arch: "amd64", Version: "v1.2.3+rc1", License: "Apache-2.0", Module: "example.com/program",
	Certificates: "20230311+deb12u1", Created: time.Unix(1700000000, 0), Tool: "test"}

// decode returns a function that decodes a document.
func decode(t *testing.T) func(raw []byte, err error) document {
	return func(raw []byte, err error) document {
		t.Helper()
		var got document
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

// compile builds a program that uses a module of its own beside Go's library.
func compile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26\n\nrequire example.com/library v1.0.0\n\n" +
			"replace example.com/library v1.0.0 => ./library\n",
		"main.go":            "package main\n\nimport \"example.com/library\"\n\nfunc main() { println(library.Name) }\n",
		"library/go.mod":     "module example.com/library\n\ngo 1.26\n",
		"library/library.go": "package library\n\nvar Name = \"library\"\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", out, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux", "GOARCH=amd64")
	if message, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, message)
	}
	return out
}

func find(t *testing.T, d document, name string) pkg {
	t.Helper()
	i := slices.IndexFunc(d.Packages, func(p pkg) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no package %s", name)
	}
	return d.Packages[i]
}

func TestGenerate(t *testing.T) {
	program := compile(t)
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	got, img := generate(t, program)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	type line struct{ version, file, url, sum string }
	lines := map[string]line{}
	for _, p := range got.Packages {
		l := line{version: p.Version, file: p.FileName}
		for _, r := range p.References {
			l.url = r.Locator
		}
		for _, c := range p.Checksums {
			l.sum = c.Value
		}
		lines[p.Name] = l
	}
	sum := func(raw []byte) string { return fmt.Sprintf("%x", sha256.Sum256(raw)) }
	want := map[string]line{
		"drover/hub": {"v1.2.3+rc1", "", "pkg:oci/hub@sha256%3A" + digest.Hex + "?arch=amd64&tag=v1.2.3-rc1", digest.Hex},
		"program":    {"v1.2.3+rc1", "/usr/program", "pkg:golang/example.com/program@v1.2.3%2Brc1", sum(content)},
		"stdlib":     {runtime.Version(), "", "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"), ""},
		// It is replaced by a directory, which has no version.
		"example.com/library": {"v1.0.0", "", "pkg:golang/example.com/library@v1.0.0", ""},
		"ca-certificates": {"20230311+deb12u1", "/" + bundle, "pkg:deb/debian/ca-certificates@20230311%2Bdeb12u1?arch=all",
			sum([]byte("pem"))},
		"empty": {"", "/empty", "", sum(nil)},
	}
	if diff := cmp.Diff(want, lines, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if p := find(t, got, "program"); !strings.Contains(p.SourceInfo, "GOARCH=amd64") || p.LicenseDeclared != "Apache-2.0" {
		t.Errorf("the program is %+v", p)
	}

	id := func(name string) string { return find(t, got, name).ID }
	relationships := []relationship{
		{documentID, describes, id("drover/hub")}, {id("drover/hub"), contains, id("empty")}, {id("drover/hub"), contains, id("ca-certificates")},
		{id("drover/hub"), contains, id("program")}, {id("program"), dependsOn, id("stdlib")},
		{id("program"), dependsOn, id("example.com/library")},
	}
	if diff := cmp.Diff(relationships, got.Relationships); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
	for _, p := range got.Packages {
		if unusable.MatchString(strings.TrimPrefix(p.ID, "SPDXRef-")) {
			t.Errorf("%s is not an ID of SPDX", p.ID)
		}
	}
}

func TestModulesNameWhatWasUsed(t *testing.T) {
	found := modules(&debug.BuildInfo{GoVersion: "go1.26.1 X:nodwarf5", Deps: []*debug.Module{
		{Path: "a", Version: "v1.0.0", Replace: &debug.Module{Path: "b", Version: "v2.0.0+incompatible", Sum: "h1:x="}},
	}})
	var got []string
	for _, p := range found {
		got = append(got, p.References[0].Locator+" "+p.SourceInfo)
	}
	if diff := cmp.Diff([]string{"pkg:golang/stdlib@1.26.1 ", "pkg:golang/b@v2.0.0%2Bincompatible go.sum: h1:x="}, got); diff != "" {
		t.Errorf("modules (-want +got):\n%s", diff)
	}
}

func TestOtherProgramsAreFiles(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("\x7fELF of another language"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, _ := generate(t, other)
	if p := find(t, got, "program"); p.Purpose != purposeFile || len(got.Packages) != 4 {
		t.Errorf("got %+v of %d packages", p, len(got.Packages))
	}
}
