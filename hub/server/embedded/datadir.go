package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// prepareDataDir makes the data directory and returns its absolute path. A directory that exists keeps its mode; what is secret in it
// lies in directories and files that only their owner may read.
func prepareDataDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("a data directory is needed")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving data directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", fmt.Errorf("making data directory: %w", err)
	}
	return abs, nil
}

// checkOwner returns an error for root, euid 0, where the data in a directory are those of another user, as with the package: files that
// root writes there, such as snapshots of etcd and rotated logs, cannot be read by the hub of that user, which does not start afterwards.
func checkOwner(dir, etcdDir string, euid int) error {
	info, err := os.Stat(etcdDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading etcd directory: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || euid != 0 || stat.Uid == 0 {
		return nil
	}
	owner := strconv.FormatUint(uint64(stat.Uid), 10)
	if found, err := user.LookupId(owner); err == nil {
		owner = found.Username
	}
	return fmt.Errorf("data directory %s belongs to the hub of user %s, which could not read what root writes there; run the hub as that "+
		"user (that of the package with systemctl start drover-hub), or choose another --data-dir", dir, owner)
}

// dirLock keeps a second hub away from a data directory. The kernel drops it with the process, so that a killed hub leaves nothing
// behind that would have to be removed by hand.
type dirLock struct{ file *os.File }

func lockDataDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "hub.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer func() { _ = file.Close() }()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s is in use by another hub%s", dir, holder(file))
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	// The process id is a hint for people only, so failing to write it is no reason to stop.
	if err := file.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(file, os.Getpid())
	}
	return &dirLock{file: file}, nil
}

// release gives the lock back at once: a process that is being forked has the file open, too, until it executes its program.
func (l *dirLock) release() {
	_ = syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN)
	_ = l.file.Close()
}

func holder(file *os.File) string {
	raw, err := io.ReadAll(io.LimitReader(file, 32))
	pid := strings.TrimSpace(string(raw))
	if err != nil || pid == "" {
		return ""
	}
	return " (process " + pid + ")"
}

// fileExists reports whether a file or directory exists. It fails if that is unknown, for instance since a right is missing.
func fileExists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// writeFile replaces path with content as a whole: a reader, or a start after a power cut, sees the old file or the new one.
func writeFile(path string, content []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("making temporary file: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err := errors.Join(tmp.Chmod(mode), writeAndSync(tmp, content), tmp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return syncDir(dir)
}

func writeAndSync(file *os.File, content []byte) error {
	if _, err := file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("syncing %s: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
