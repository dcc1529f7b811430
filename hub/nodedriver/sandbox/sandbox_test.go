package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// A link that the program has made leads the hub to no file of its own.
func TestLinks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	secret := filepath.Join(t.TempDir(), "secret")
	for _, path := range []string{program, secret} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parent := t.TempDir()
	s, err := New(parent, program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(s.dir, "home", "link")); err != nil {
		t.Fatal(err)
	}
	if content, err := s.Root().ReadFile("home/link"); err == nil {
		t.Errorf("the link was followed: %q", content)
	}
	if err := s.WriteFile("/home/link", []byte("overwritten")); err == nil {
		t.Error("the link was followed by a write")
	}
	if err := s.WriteFile("/home/a/b/c", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
