package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"syscall"
)

// CacheDir is the folder for everything kept outside the repository: $DROVER_CACHE, or ~/.cache/drover.
func CacheDir() (string, error) {
	if dir := os.Getenv("DROVER_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder (set DROVER_CACHE): %w", err)
	}
	return filepath.Join(home, ".cache", "drover"), nil
}

// Names lists the labs that have a ledger in the cache.
func Names(cache string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(cache, "labs", "*", "state.json"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	sort.Strings(names)
	return names, nil
}

// fileLock takes an exclusive lock on a file, which the kernel gives back when this process ends. With wait false it
// returns errLocked if somebody else holds it.
func fileLock(path string, wait bool) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lockedError{holder: string(holder[:n])}
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if now, err := os.Stat(path); err != nil || !sameFile(f, now) {
		_ = f.Close() // its holder removed it before letting go
		return fileLock(path, wait)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d", os.Getpid()), 0)
	}
	return func() { _ = f.Close() }, nil
}

func sameFile(f *os.File, other os.FileInfo) bool {
	info, err := f.Stat()
	return err == nil && os.SameFile(info, other)
}

// lockedError says that another process holds a lock.
type lockedError struct{ holder string }

func (e lockedError) Error() string { return "in use by process " + e.holder }
