package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Remove implements Host.
func (Machine) Remove(path string) error {
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
		return explain(&os.PathError{Op: "remove", Path: path, Err: err})
	}
	return dir.sync()
}

// RemoveAll implements Host. What is mounted below is not touched: a plan that deletes a folder does not mean the volumes of others.
func (Machine) RemoveAll(path string) error {
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
	found, err := dir.lstat(name)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.Mode&unix.S_IFMT == unix.S_IFDIR {
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
		return explain(err)
	}
	return dir.sync()
}

func refuseMounts(path string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return fmt.Errorf("reading mounts: %w", err)
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is not removed, because something is mounted on %s: unmount it first", path, mounts[0].Mountpoint)
	}
	return nil
}

func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// Rename implements Host.
func (Machine) Rename(from, to string) error {
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
		return explain(&os.LinkError{Op: "rename", Old: from, New: to, Err: err})
	}
	if err := source.sync(); err != nil || source.stat.Ino == target.stat.Ino && source.stat.Dev == target.stat.Dev {
		return err
	}
	return target.sync()
}

// Symlink implements Host.
func (Machine) Symlink(target, path string) error {
	dir, name, err := openParent(path, 0)
	if err != nil {
		return err
	}
	defer dir.close()
	temp := temporaryName(name)
	for try := 0; ; try++ {
		err = unix.Symlinkat(target, dir.fd, temp)
		if !errors.Is(err, unix.EEXIST) || try == 2 {
			break
		}
		_ = unix.Unlinkat(dir.fd, temp, 0) // left by a process that was killed
	}
	if err == nil {
		err = unix.Renameat(dir.fd, temp, dir.fd, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dir.fd, temp, 0)
		return explain(&os.LinkError{Op: "symlink", Old: target, New: path, Err: err})
	}
	return dir.sync()
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Sync implements Host. It syncs the file system as a whole: for an image of many files that takes a tenth of the time of one fsync each, and
// for one of few files as long. Linux tells of errors since 5.8; before, only the log of the kernel does.
func (Machine) Sync(dir string) error {
	opened, err := openFolder(dir, 0, false)
	if err != nil {
		return err
	}
	defer opened.close()
	file, err := opened.file(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Syncfs(int(file.Fd())); err != nil {
		return &os.PathError{Op: "sync", Path: dir, Err: err}
	}
	return nil
}
