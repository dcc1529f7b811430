package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock implements FileSystem. The file stays after unlock: removing it would let two processes hold "the" lock, one of them on the removed
// file.
func (OS) Lock(path string) (func(), error) {
	lock, err := OpenLock(path)
	if err != nil {
		return nil, err
	}
	held, err := lock.TryLock()
	switch {
	case err != nil:
		lock.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	case !held:
		defer lock.Close()
		return nil, fmt.Errorf("%s is locked by another process%s: %w", path, lock.HolderHint(), ErrLocked)
	}
	return func() { lock.Close() }, nil
}

// LockFile is a file for flock(2) that contains the pid of its holder. The lock ends when every descriptor of the file is closed.
type LockFile struct {
	*os.File
}

// OpenLock opens a lock file of mode 0600, or creates it, without locking it. A symbolic link is not followed. On a file system that has
// become read-only a file that exists can be locked all the same, and names an earlier holder: an agent that starts then can still probe
// the machine, and report what it cannot do.
func OpenLock(path string) (LockFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.EROFS) {
		file, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	}
	return LockFile{file}, err
}

// TryLock takes the exclusive lock and writes the pid; false means that another process holds it.
func (l LockFile) TryLock() (bool, error) {
	err := unix.Flock(int(l.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The pid is only for messages, so a full disk does not prevent the lock.
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if l.Truncate(0) == nil {
		_, _ = l.WriteAt([]byte(pid), 0)
	}
	return true, nil
}

// PID is the process that took the lock last, or 0 if none is recorded.
func (l LockFile) PID() int {
	raw := make([]byte, 32)
	n, err := l.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw[:n])))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

// HolderHint is " (pid N)" for messages, or empty.
func (l LockFile) HolderHint() string {
	if pid := l.PID(); pid > 0 {
		return fmt.Sprintf(" (pid %d)", pid)
	}
	return ""
}
