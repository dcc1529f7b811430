package sbom

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGeneratePackage(t *testing.T) {
	program := compile(t)
	deb, unit := filepath.Join(t.TempDir(), "program.deb"), filepath.Join(t.TempDir(), "unit")
	for path, text := range map[string]string{deb: "the package", unit: "[Unit]"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const url = "pkg:deb/drover/program@1.2.3-1?arch=amd64"
	p := Package{Name: "program-package", Release: "1.2.3-1", URL: url, File: deb, Subject: subject,
		Files: map[string]string{"/usr/lib/systemd/system/program.service": unit, "/usr/bin/program": program}}
	got := decode(t)(GeneratePackage(p))
	root := find(t, got, "program-package")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("the package")))
	if root.Purpose != "INSTALL" || root.Version != "1.2.3-1" || root.References[0].Locator != url || root.Checksums[0].Value != sum ||
		got.Name != "program-package 1.2.3-1 linux/amd64" || got.Namespace != "https://github.com/drover-dev/drover/sbom/program-package-"+sum {
		t.Errorf("the package is %+v in %s, %s", root, got.Name, got.Namespace)
	}
	id := func(name string) string { return find(t, got, name).ID }
	want := []relationship{
		{documentID, describes, root.ID}, {root.ID, contains, id("program")}, {id("program"), dependsOn, id("stdlib")},
		{id("program"), dependsOn, id("example.com/library")}, {root.ID, contains, id("program.service")},
	}
	if diff := cmp.Diff(want, got.Relationships); diff != "" {
		t.Errorf("relationships (-want +got):\n%s", diff)
	}
	if unit := find(t, got, "program.service"); unit.FileName != "/usr/lib/systemd/system/program.service" {
		t.Errorf("the unit is %+v", unit)
	}
	if got := find(t, got, "program"); got.FileName != "/usr/bin/program" || got.Version != "v1.2.3+rc1" {
		t.Errorf("the program is %+v", got)
	}
	p.Files["/usr/bin/program"] = filepath.Join(t.TempDir(), "missing")
	if _, err := GeneratePackage(p); err == nil {
		t.Error("a missing file is not noticed")
	}
}
