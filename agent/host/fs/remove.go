package fs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Remove implements FileSystem.
func (OS) Remove(path string) error {
	dir, name, err := openParent(path, 0)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.close()
	err = unix.Unlinkat(dir.fd, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir.fd, name, unix.AT_REMOVEDIR)
	}
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return withHint(pathError("remove", path, err))
	}
	return dir.sync()
}

// RemoveAll implements FileSystem. A plan that deletes a directory does not mean the volumes that are mounted below it.
func (OS) RemoveAll(path string) error {
	if clean := filepath.Clean(path); !filepath.IsAbs(clean) || clean == "/" {
		return fmt.Errorf("refusing to remove %q", path)
	}
	dir, name, err := openParent(path, 0)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.close()
	stat, err := dir.lstat(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := refuseMounts(filepath.Join(dir.path, name)); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(filepath.Join("/proc/self/fd", strconv.Itoa(dir.fd)))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(name); err != nil {
		return withHint(err)
	}
	return dir.sync()
}

func refuseMounts(path string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("reading mounts: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("refusing to remove %s: a file system is mounted on %s; unmount it first", path, mounts[0].Mountpoint)
	}
	return nil
}

// Rename implements FileSystem.
func (OS) Rename(from, to string) error {
	source, oldName, err := openParent(from, 0)
	if err != nil {
		return err
	}
	defer source.close()
	target, newName, err := openParent(to, 0)
	if err != nil {
		return err
	}
	defer target.close()
	if err := unix.Renameat(source.fd, oldName, target.fd, newName); err != nil {
		return withHint(&os.LinkError{Op: "rename", Old: from, New: to, Err: err})
	}
	if err := source.sync(); err != nil || source.stat.Ino == target.stat.Ino && source.stat.Dev == target.stat.Dev {
		return err
	}
	return target.sync()
}

// Sync implements FileSystem with syncfs(2): for an image of many files that takes a tenth of the time of one fsync for each, for one of
// few files as long. The kernel reports write errors here since 5.8; before, only in its log.
func (OS) Sync(dir string) error {
	opened, err := openDir(dir, 0, false)
	if err != nil {
		return err
	}
	defer opened.close()
	file, err := opened.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Syncfs(int(file.Fd())); err != nil {
		return pathError("sync", dir, err)
	}
	return nil
}
