package fs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAppendStreamKeepsWhatCame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parts", "a.part")
	cut := errors.New("cut")
	n, err := OS{}.AppendStream(path, io.MultiReader(strings.NewReader("one "), iotest.ErrReader(cut)))
	if n != 4 || !errors.Is(err, cut) {
		t.Fatalf("got %d, %v", n, err)
	}
	if n, err = (OS{}).AppendStream(path, strings.NewReader("two")); n != 3 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil || string(raw) != "one two" {
		t.Errorf("got %q, %v", raw, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := (OS{}).AppendStream(link, strings.NewReader("x")); err == nil {
		t.Error("a link was followed")
	}
}
