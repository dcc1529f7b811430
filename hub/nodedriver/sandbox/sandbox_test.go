package sandbox

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// endsEnv makes the test's program one that ends at once.
const endsEnv = "DROVER_TEST_ENDS"

func TestMain(m *testing.M) {
	if os.Getenv(endsEnv) != "" {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Programs start while others are copied: a process that has just been forked must not hold the copy open for writing.
func TestManyAtOnce(t *testing.T) {
	parent := t.TempDir()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 8 {
				s, err := New(parent, os.Args[0])
				if err != nil {
					t.Error(err)
					return
				}
				cmd := s.Command([]string{endsEnv + "=1"})
				if err = Start(cmd); err == nil {
					err = cmd.Wait()
				}
				if err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
}

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
