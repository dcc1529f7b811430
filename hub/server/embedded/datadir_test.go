package embedded

import (
	"strings"
	"syscall"
	"testing"
)

// TestLockDataDir: a lock that was given back is free at once, although a process that is being forked has the file open.
func TestLockDataDir(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	forked, err := syscall.Dup(int(lock.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(forked) }()
	if _, err := lockDataDir(dir); err == nil || !strings.Contains(err.Error(), "is in use by another hub (process ") {
		t.Errorf("locked twice: %v", err)
	}
	lock.release()
	again, err := lockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}
