package fs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layer makes a tar stream; a Typeflag of 0 is a regular file whose content is its Linkname.
func layer(t testing.TB, entries ...tar.Header) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, header := range entries {
		content := ""
		if header.Typeflag == 0 {
			content, header.Linkname, header.Typeflag = header.Linkname, "", tar.TypeReg
			header.Size = int64(len(content))
		}
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

func file(name, content string) tar.Header {
	return tar.Header{Name: name, Linkname: content, Mode: 0o644}
}

func link(kind byte, name, target string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: target}
}

// tree lists what is below dir: mode and content or target.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(raw)
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text = "-> " + target
		}
		name, _ := filepath.Rel(dir, path)
		found[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestUnpackLayers(t *testing.T) {
	dir := t.TempDir()
	for i, l := range []io.Reader{
		layer(t, tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o777},
			tar.Header{Name: "/run.sh", Linkname: "#!/bin/sh", Mode: 0o6777}, file("bin/tool", "v1"), file("bin/old", "x"),
			tar.Header{Name: "zero", Mode: 0}, file("data/a/1", "1"), file("data/a/2", "2"), file("swap", "file"),
			link(tar.TypeLink, "bin/same", "bin/tool"), link(tar.TypeSymlink, "bin/alias", "tool"),
			tar.Header{Typeflag: tar.TypeChar, Name: "dev/null"}, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}),
		layer(t, file("bin/.wh.old", ""), file("bin/tool", "v2"), file("data/a/3", "3"), file("data/a/.wh..wh..opq", ""),
			tar.Header{Typeflag: tar.TypeDir, Name: "swap"}, file("swap/in", "directory")),
	} {
		if err := (OS{}).Unpack(t.Context(), dir, l); err != nil {
			t.Fatalf("layer %d: %v", i, err)
		}
	}
	want := map[string]string{
		"bin": "drwxr-xr-x", "bin/tool": "-rw-r--r-- v2", "bin/same": "-rw-r--r-- v1", "bin/alias": "-> tool",
		"run.sh": "-rwxr-xr-x #!/bin/sh", "zero": "-rwxr-xr-x ", "dev": "drwxr-xr-x",
		"data": "drwxr-xr-x", "data/a": "drwxr-xr-x", "data/a/3": "-rw-r--r-- 3",
		"swap": "drwxr-xr-x", "swap/in": "-rw-r--r-- directory",
	}
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestUnpackStaysInDirectory shows that S6 cannot happen; TestUnpackExtensionHeaders has more.
func TestUnpackStaysInDirectory(t *testing.T) {
	tests := map[string]func(outside string) []tar.Header{
		"name with ..":          func(string) []tar.Header { return []tar.Header{file("../victim", "bad")} },
		"name with .. inside":   func(string) []tar.Header { return []tar.Header{file("a/../../victim", "bad")} },
		"sibling with a prefix": func(string) []tar.Header { return []tar.Header{file("../in-sibling/victim", "bad")} },
		"through a symlink": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", outside), file("out/victim", "bad")}
		},
		"through a relative symlink": func(string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", ".."), file("out/victim", "bad")}
		},
		"through a chain": func(string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "a", "b"), link(tar.TypeSymlink, "b", "../"), file("a/victim", "bad")}
		},
		"directory through a symlink": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", outside), {Typeflag: tar.TypeDir, Name: "out/new"}}
		},
		"hardlink to the outside": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeLink, "hard", outside+"/victim"), file("hard", "bad")}
		},
		"hardlink with ..": func(string) []tar.Header { return []tar.Header{link(tar.TypeLink, "hard", "../victim")} },
		"hardlink through a symlink": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", outside), link(tar.TypeLink, "hard", "out/victim")}
		},
		"whiteout through a symlink": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", outside), file("out/.wh.victim", "")}
		},
		"opaque through a symlink": func(outside string) []tar.Header {
			return []tar.Header{link(tar.TypeSymlink, "out", outside), file("out/.wh..wh..opq", "")}
		},
		"whiteout of ..": func(string) []tar.Header { return []tar.Header{file(".wh...", "")} },
	}
	for name, entries := range tests {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			dir := filepath.Join(outside, "in")
			for _, d := range []string{dir, filepath.Join(outside, "in-sibling")} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			victim := filepath.Join(outside, "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := OS{}.Unpack(t.Context(), dir, layer(t, entries(outside)...))
			if err == nil {
				t.Error("no error")
			}
			got := tree(t, outside)
			for path := range got {
				if path == "in" || strings.HasPrefix(path, "in/") {
					delete(got, path)
				}
			}
			if diff := cmp.Diff(map[string]string{"victim": "-rw------- precious", "in-sibling": "drwxr-xr-x"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnpackReplacesALinkInsteadOfFollowingIt(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "in")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := OS{}.Unpack(t.Context(), dir, layer(t, link(tar.TypeSymlink, "a", "../victim"), file("a", "new")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"in": "drwxr-xr-x", "in/a": "-rw-r--r-- new", "victim": "-rw------- precious"}
	if diff := cmp.Diff(want, tree(t, outside)); diff != "" {
		t.Error(diff)
	}
}

func TestUnpackReportsABrokenStreamAndACancelledContext(t *testing.T) {
	raw, err := io.ReadAll(layer(t, file("a", strings.Repeat("x", 2000))))
	if err != nil {
		t.Fatal(err)
	}
	if err := (OS{}).Unpack(t.Context(), t.TempDir(), bytes.NewReader(raw[:1500])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (OS{}).Unpack(ctx, t.TempDir(), bytes.NewReader(raw)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	seed, err := io.ReadAll(layer(f, file("a/b", "x"), link(tar.TypeSymlink, "out", "../.."), file("out/c", "y"), file("a/.wh.b", "")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = OS{}.Unpack(t.Context(), dir, bytes.NewReader(raw))
		entries, err := os.ReadDir(outside)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
	})
}
