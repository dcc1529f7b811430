package local

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxFileBytes bounds a plan or position file.
const maxFileBytes = 32 << 20

// readTrusted reads a file below base. A link is followed as long as it stays below base. The file, and every directory on the way to it,
// must be owned by root or the agent's user, and nobody else may be able to write it: who can write a plan can do anything on this machine.
func readTrusted(base, relative string) ([]byte, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// O_NONBLOCK: opening a pipe must not wait for a writer.
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
	if err := checkTrusted(path, info); err != nil {
		return nil, err
	}
	if err := checkParents(base, path); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(raw) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return raw, err
}

// checkParents checks the directories above path, both by its name and by where links lead.
func checkParents(base, path string) error {
	realBase, err := filepath.EvalSymlinks(base)
	if err != nil {
		return err
	}
	realPath, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, names := range [][2]string{{base, path}, {realBase, realPath}} {
		aboveBase := false
		for dir := filepath.Dir(names[1]); ; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				return err
			}
			// In a sticky directory like /tmp nobody can replace what others own.
			if !aboveBase || info.Mode()&fs.ModeSticky == 0 {
				if err := checkTrusted(dir, info); err != nil {
					return err
				}
			}
			aboveBase = aboveBase || dir == names[0]
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

// checkTrusted returns an error if others than root and the agent's user can change a file or directory.
func checkTrusted(path string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s is owned by user %d and must be owned by root: whoever can write it can run anything on this machine",
			path, stat.Uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %04o and must not be writable by group or others: run chmod go-w", path, mode)
	}
	return nil
}
