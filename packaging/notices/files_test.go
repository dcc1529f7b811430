package notices

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestReadModule(t *testing.T) {
	root := fstest.MapFS{}
	for name, content := range map[string]string{
		"LICENSE": "text\r\n", "Licence.txt": "text", "LICENSE-MIT": "text", "MIT.LICENSE": "text", "COPYING.LESSER": "text", "NOTICE": "text",
		"UNLICENSE": "text", "copyright": "text", "PATENTS.md": "text", "third_party/forked/license": "\n\n  two \n\nlines\t\n\n",
		"license.go": "package a", "license_test.go": "package a", "hack/verify-license.sh": "#!/bin/sh", "LICENSE.png": "\x89PNG\x00",
		"README.md": "text", "notebook": "text", "sublicense": "text", "COPYING": "\n",
		".github/LICENSE": "text", "vendor/a/LICENSE": "text", "testdata/LICENSE": "text", "a/LICENSES/b/LICENSE": "text",
	} {
		root[name] = &fstest.MapFile{Data: []byte(content)}
	}
	found, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range found {
		got[f.name] = f.text
	}
	want := map[string]string{"third_party/forked/license": "  two\n\nlines\n"}
	for _, name := range []string{"LICENSE", "Licence.txt", "LICENSE-MIT", "MIT.LICENSE", "COPYING.LESSER", "NOTICE", "UNLICENSE", "copyright",
		"PATENTS.md"} {
		want[name] = "text\n"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if found, err := readModule(fstest.MapFS{"LICENSE.go": {Data: []byte("package a")}}); err == nil {
		t.Errorf("a module without a license has %v", found)
	}
}

func TestReadGo(t *testing.T) {
	root := fstest.MapFS{"LICENSE": {Data: []byte("a")}, "PATENTS": {Data: []byte("b")}, "src/LICENSE": {Data: []byte("c")}}
	got, err := readGo(root)
	if diff := cmp.Diff([]file{{"LICENSE", "a\n"}, {"PATENTS", "b\n"}}, got, cmp.AllowUnexported(file{})); err != nil || diff != "" {
		t.Errorf("%v, files (-want +got):\n%s", err, diff)
	}
	delete(root, "LICENSE")
	if _, err := readGo(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a license: %v", err)
	}
}
