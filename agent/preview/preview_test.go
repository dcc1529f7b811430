package preview

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("same", "a\n", 0o600)
	write("mode", "a\n", 0o644)
	write("text", "one\ntwo\nthree\n", 0o600)
	write("binary", "a\x00", 0o600)
	write("gone", "", 0o600)
	if err := os.Mkdir(path("folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", path("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("folder", path("folder-link")); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) plans.File {
		return plans.File{Path: path(name), Content: base64.StdEncoding.EncodeToString([]byte(text)), UID: -1, GID: -1}
	}
	tests := map[string]struct {
		file plans.File
		want File
	}{
		"same": {file("same", "a\n"), File{Kind: Unchanged}},
		"mode": {file("mode", "a\n"), File{Kind: Change, Notes: []string{"mode 0644 -> 0600"}}},
		"text": {file("text", "one\n2\nthree\n"), File{Kind: Change, ContentChanges: true, Diff: " one\n-two\n+2\n three\n"}},
		"binary": {file("binary", "b\x00c"), File{Kind: Change, ContentChanges: true,
			Notes: []string{"2 bytes -> 3 bytes, not text"}}},
		"new": {file("new", "x\n"), File{Kind: Create, ContentChanges: true, Notes: []string{"mode 0600, owner 0:0"},
			Diff: "+x\n"}},
		"link": {file("link", ""), File{Kind: Replace,
			Notes: []string{"is a link to /etc/shadow, which would be replaced, not followed"}}},
		"gone":         {plans.File{Path: path("gone"), Action: plans.ActionDelete}, File{Kind: Delete}},
		"long gone":    {plans.File{Path: path("none"), Action: plans.ActionDelete}, File{Kind: Unchanged}},
		"folder":       {plans.File{Path: path("folder"), Directory: true, UID: -1, GID: -1}, File{Kind: Unchanged, Directory: true}},
		"below a file": {plans.File{Path: path("same/none"), Action: plans.ActionDelete}, File{Kind: Unchanged}},
		"link to a folder that is so": {plans.File{Path: path("folder-link"), Directory: true, UID: -1, GID: -1},
			File{Kind: Unchanged, Directory: true, Notes: []string{"is a link to folder"}}},
		"link to a folder": {plans.File{Path: path("folder-link"), Directory: true, Permissions: "0700", UID: -1, GID: -1},
			File{Kind: Change, Directory: true, Notes: []string{"is a link to folder, which is followed", "mode 0755 -> 0700"}}},
		"file over folder": {file("folder", "x"), File{Kind: Fail, Notes: []string{"is a directory; the plan has a file there"}}},
		"bad content": {plans.File{Path: path("new"), Content: "?"},
			File{Kind: Fail, Notes: []string{"decoding content: illegal base64 data at input byte 0"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Files(fs.OS{}, []plans.File{test.file})[0]
			test.want.Path = test.file.Path
			if _, body, found := strings.Cut(got.Diff, "@@\n"); found {
				got.Diff = body
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	// Nothing was touched.
	if raw, err := os.ReadFile(path("text")); string(raw) != "one\ntwo\nthree\n" || err != nil {
		t.Errorf("got %q, %v", raw, err)
	}
}
