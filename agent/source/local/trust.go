package local

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFileBytes bounds a file that is read whole.
const maxFileBytes = 32 << 20

// readTrusted reads a file below base. A link is followed as long as it stays below base. The file, and every folder on the way to it, must
// belong to root or to the agent's user, and nobody else may write it: who can write a plan can do anything on this machine.
func readTrusted(base, relative string) ([]byte, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// A pipe must not keep the agent waiting for someone who writes.
	file, err := root.OpenFile(relative, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(base, relative)
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := trusted(path, info); err != nil {
		return nil, err
	}
	if err := trustedFolders(base, path); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxFileBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return raw, nil
}

// trustedFolders checks the folders above path, both by the names that lead there and where links lead to.
func trustedFolders(base, path string) error {
	for _, resolve := range []bool{false, true} {
		if resolve {
			var err error
			if base, err = filepath.EvalSymlinks(base); err != nil {
				return err
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				return err
			}
		}
		for dir, above := filepath.Dir(path), false; ; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				return err
			}
			// In a folder like /tmp nobody can exchange what belongs to another.
			if !above || info.Mode()&fs.ModeSticky == 0 {
				if err := trusted(dir, info); err != nil {
					return err
				}
			}
			above = above || dir == base
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

// trusted tells whether only root and the agent's user can change a file or folder.
func trusted(path string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s belongs to user %d and must belong to root: whoever can write it could run anything on this machine", path, stat.Uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o and must not be writable by its group or by others: use chmod go-w", path, mode)
	}
	return nil
}
