package embedded

import (
	"os"
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

// TestForeignDataDir: root writes nothing into the data directory of another user's hub, which could not read it.
func TestForeignDataDir(t *testing.T) {
	dir := t.TempDir()
	opts := Options{DataDir: dir}
	if err := checkOwner(dir, opts.etcdDir(), 0); err != nil {
		t.Errorf("without data: %v", err)
	}
	if err := os.Mkdir(opts.etcdDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := checkOwner(dir, opts.etcdDir(), 0); err != nil {
			t.Errorf("with data of root's own: %v", err)
		}
		if err := os.Chown(opts.etcdDir(), 4711, 4711); err != nil {
			t.Fatal(err)
		}
		server, err := Start(t.Context(), opts)
		if err == nil {
			t.Fatalf("root has started the hub of another user, stopped: %v", server.Stop())
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 || !strings.Contains(err.Error(), "belongs to the hub of user 4711") {
			t.Errorf("got %v, and in the directory %v", err, left)
		}
	}
	want := "data directory " + dir + " belongs to the hub of user "
	if err := checkOwner(dir, opts.etcdDir(), 0); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("root: got %v, want %s", err, want)
	}
	if err := checkOwner(dir, opts.etcdDir(), 1000); err != nil {
		t.Errorf("another user: %v", err)
	}
}
