package filestate

import (
	"encoding/base64"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/testenv/fake"
	"github.com/drover-dev/drover/plans"
)

func TestCompare(t *testing.T) {
	h := fake.New()
	attrs := fs.Attributes{Mode: 0o640, UID: 7, GID: 8}
	if err := errors.Join(h.WriteFile("/etc/f", []byte("one"), attrs), h.MkdirAll("/etc/d", fs.Attributes{Mode: 0o750, UID: 7}),
		h.Symlink("/etc/f", "/etc/to-file"), h.Symlink("d", "/etc/to-folder"), h.Symlink("none", "/etc/to-nothing")); err != nil {
		t.Fatal(err)
	}
	file := func(path, content, permissions string, uid, gid int) plans.File {
		return plans.File{Path: path, Content: base64.StdEncoding.EncodeToString([]byte(content)), Permissions: permissions, UID: uid, GID: gid}
	}
	folder := func(path, permissions string, uid int) plans.File {
		return plans.File{Path: path, Directory: true, Permissions: permissions, UID: uid, GID: -1}
	}
	gone := func(path string) plans.File { return plans.File{Path: path, Action: plans.ActionDelete} }
	tests := map[string]struct {
		file plans.File
		want Difference
	}{
		"same":                            {file("/etc/f", "one", "0640", 7, 8), Difference{}},
		"same, whoever owns it":           {file("/etc/f", "one", "0640", -1, -1), Difference{}},
		"missing":                         {file("/etc/g", "one", "0640", 7, 8), Difference{Kind: true}},
		"missing below a file":            {file("/etc/f/g", "one", "0640", 7, 8), Difference{Kind: true}},
		"another mode":                    {file("/etc/f", "one", "4640", 7, 8), Difference{Mode: true}},
		"another owner":                   {file("/etc/f", "one", "0640", 0, -1), Difference{Owner: true}},
		"another group":                   {file("/etc/f", "one", "0640", -1, 0), Difference{Owner: true}},
		"another content":                 {file("/etc/f", "two", "0640", 7, 8), Difference{Content: true}},
		"another length, and all else":    {file("/etc/f", "three", "0600", 0, 0), Difference{Mode: true, Owner: true, Content: true}},
		"a link in its place":             {file("/etc/to-file", "one", "0640", 7, 8), Difference{Kind: true}},
		"a folder in its place":           {file("/etc/d", "one", "0750", 7, 0), Difference{Kind: true}},
		"folder":                          {folder("/etc/d", "0750", 7), Difference{}},
		"folder, another mode":            {folder("/etc/d", "0700", 7), Difference{Mode: true}},
		"folder behind a link":            {folder("/etc/to-folder", "0750", 7), Difference{Link: "d"}},
		"folder behind a link, changed":   {folder("/etc/to-folder", "0700", 0), Difference{Link: "d", Mode: true, Owner: true}},
		"folder, a file in its place":     {folder("/etc/f", "0750", 7), Difference{Kind: true}},
		"folder, a link to a file there":  {folder("/etc/to-file", "0750", 7), Difference{Kind: true}},
		"folder, a link to nothing there": {folder("/etc/to-nothing", "0750", 7), Difference{Kind: true}},
		"gone already":                    {gone("/etc/g"), Difference{}},
		"gone already, below a file":      {gone("/etc/f/g"), Difference{}},
		"not gone":                        {gone("/etc/f"), Difference{Kind: true}},
		"a link that is not gone":         {gone("/etc/to-nothing"), Difference{Kind: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			desired, err := NewDesired(test.file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Compare(h, test.file.Path, desired)
			got.Current = nil
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
			if same := test.want.Kind || test.want.Mode || test.want.Owner || test.want.Content; got.Same() == same {
				t.Errorf("same is %t", got.Same())
			}
		})
	}
}

func TestCompareCannotLook(t *testing.T) {
	h := fake.New()
	if err := errors.Join(h.Symlink("b", "/a"), h.Symlink("a", "/b")); err != nil {
		t.Fatal(err)
	}
	if _, err := Compare(h, "/a/f", Desired{}); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v", err)
	}
	if _, err := NewDesired(plans.File{Path: "/f", Content: "?"}); err == nil {
		t.Error("content that is no base64 is taken")
	}
}
