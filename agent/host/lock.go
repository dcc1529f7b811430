package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock implements Host. The file stays when the lock is given back: removing it would let two processes hold "the" lock, one of them on
// the removed file.
func (Machine) Lock(path string) (func(), error) {
	file, err := openLock(path)
	if err != nil {
		return nil, err
	}
	held, err := tryLock(file)
	switch {
	case err != nil:
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	case !held:
		defer file.Close()
		return nil, fmt.Errorf("%s is held by another process%s: %w", path, holder(file), ErrLocked)
	}
	return func() { file.Close() }, nil
}

func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// tryLock takes the lock and writes down who holds it.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Told to people only, so a full disk is no reason to go without the lock.
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if file.Truncate(0) == nil {
		_, _ = file.WriteAt([]byte(pid), 0)
	}
	return true, nil
}

// lockPID is the process that wrote itself into a lock, or 0.
func lockPID(file *os.File) int {
	raw := make([]byte, 32)
	n, err := file.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw[:n])))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}

func holder(file *os.File) string {
	if pid := lockPID(file); pid > 0 {
		return fmt.Sprintf(" (pid %d)", pid)
	}
	return ""
}
