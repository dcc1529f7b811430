package fs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// TestWriteFile shows that files are replaced as a whole (B21) and keep all mode bits (B11).
func TestWriteFile(t *testing.T) {
	m, dir := OS{}, t.TempDir()
	path := filepath.Join(dir, "a", "b", "file")
	write := func(content string, mode uint32) os.FileInfo {
		t.Helper()
		if err := m.WriteFile(path, []byte(content), WithMode(mode)); err != nil {
			t.Fatal(err)
		}
		raw, err := m.ReadFile(path)
		if err != nil || string(raw) != content {
			t.Fatalf("read %q, %v", raw, err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Mode & 0o7777; got != mode {
			t.Fatalf("mode is %o, want %o", got, mode)
		}
		return info
	}
	first := write("one", 0o600)
	if second := write("one", 0o600); !os.SameFile(first, second) {
		t.Error("an unchanged file was written again")
	}
	if second := write("two", 0o600); os.SameFile(first, second) {
		t.Error("the file was written in place")
	}
	write("two", 0o644)
	write("two", 0o6755) // setuid and setgid stay
	if names, _ := m.ReadDir(filepath.Dir(path)); !cmp.Equal(names, []string{"file"}) {
		t.Errorf("left behind: %v", names)
	}
}

// TestWriteFileReplacesALink shows that a link in the file's place leads nowhere (S5).
func TestWriteFileReplacesALink(t *testing.T) {
	m, dir := OS{}, t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := m.WriteFile(target, []byte("precious"), WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(link, []byte("new"), WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if raw, _ := os.ReadFile(target); string(raw) != "precious" {
		t.Errorf("the link's target is %q", raw)
	}
	if info, _ := os.Lstat(link); !info.Mode().IsRegular() {
		t.Error("the link is still there")
	}
}

func TestWriteFileOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	m, path := OS{}, filepath.Join(t.TempDir(), "file")
	owner := func() [2]uint32 {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		return [2]uint32{stat.Uid, stat.Gid}
	}
	for _, step := range []struct {
		attrs Attributes
		want  [2]uint32
	}{
		{Attributes{Mode: 0o600, UID: 12, GID: 34}, [2]uint32{12, 34}},
		{Attributes{Mode: 0o640, UID: -1, GID: -1}, [2]uint32{12, 34}},
		{Attributes{Mode: 0o4755, UID: 0, GID: -1}, [2]uint32{0, 34}},
	} {
		if err := m.WriteFile(path, []byte("content"), step.attrs); err != nil {
			t.Fatal(err)
		}
		if got := owner(); got != step.want {
			t.Errorf("%+v gives %v, want %v", step.attrs, got, step.want)
		}
	}
}

func TestWriteStreamLeavesNothingOnFailure(t *testing.T) {
	m, dir := OS{}, t.TempDir()
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("line cut")))
	if err := m.WriteStream(filepath.Join(dir, "blob"), broken, WithMode(0o600)); err == nil || err.Error() != "line cut" {
		t.Errorf("got %v", err)
	}
	if names, _ := m.ReadDir(dir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestAppendFile(t *testing.T) {
	m, path := OS{}, filepath.Join(t.TempDir(), "new", "journal")
	for _, line := range []string{"one\n", "two\n"} {
		if err := m.AppendFile(path, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := m.ReadFile(path); err != nil || string(raw) != "one\ntwo\n" {
		t.Errorf("read %q, %v", raw, err)
	}
	if info, _ := os.Lstat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %o", info.Mode().Perm())
	}
}

// TestMkdirAllAndRemove shows among others that a path that is no proper one is not removed (S9).
func TestMkdirAllAndRemove(t *testing.T) {
	m, base := OS{}, t.TempDir()
	dir := filepath.Join(base, "a", "b")
	for _, mode := range []uint32{0o700, 0o1777} {
		if err := m.MkdirAll(dir, WithMode(mode)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Sys().(*syscall.Stat_t).Mode&0o7777 != mode {
			t.Errorf("got %v, %v", info.Mode(), err)
		}
	}
	if err := m.WriteFile(filepath.Join(dir, "file"), nil, WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if err := m.MkdirAll(filepath.Join(dir, "file"), WithMode(0o700)); err == nil {
		t.Error("made a directory of a file")
	}
	if err := m.Remove(dir); err == nil {
		t.Error("removed a directory that is not empty")
	}
	for _, gone := range []string{filepath.Join(dir, "file"), dir, dir, filepath.Join(dir, "below")} {
		if err := m.Remove(gone); err != nil {
			t.Errorf("removing %s: %v", gone, err)
		}
	}
	for range 2 {
		if err := m.RemoveAll(filepath.Join(base, "a")); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "/", "//", "relative", "/.."} {
		if err := m.RemoveAll(bad); err == nil {
			t.Errorf("removed %q", bad)
		}
	}
}
