package fs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLock shows that two agents cannot share a state directory, and that the refused one is told who holds it.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (OS{}).Lock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	unlock()
	again, err := OS{}.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestSymlink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "link")
	for _, target := range []string{"/etc/a", "../b"} {
		if err := (OS{}).Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		if info, err := (OS{}).Lstat(path); err != nil || info.Link != target {
			t.Errorf("got %+v, %v", info, err)
		}
	}
}
