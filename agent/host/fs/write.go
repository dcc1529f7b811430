package fs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WriteFile implements FileSystem: temporary file in the same directory, owner, mode, fsync, rename, fsync of the directory.
func (OS) WriteFile(path string, content []byte, attrs Attributes) error {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return withHint(err)
	}
	defer dir.close()
	attrs = dir.keepOwner(name, attrs)
	if dir.hasFile(name, content, attrs) {
		return nil
	}
	return dir.replace(name, bytes.NewReader(content), attrs)
}

// WriteStream implements FileSystem.
func (OS) WriteStream(path string, content io.Reader, attrs Attributes) error {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return withHint(err)
	}
	defer dir.close()
	return dir.replace(name, content, dir.keepOwner(name, attrs))
}

// MkdirAll implements FileSystem.
func (OS) MkdirAll(path string, attrs Attributes) error {
	// Until the attributes are set the agent must be able to search it.
	opened, err := openDir(path, attrs.Mode&0o777|0o100, false)
	if err != nil {
		return withHint(err)
	}
	defer opened.close()
	dir, err := opened.open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	if hasAttributes(&opened.stat, keepOwner(&opened.stat, attrs)) {
		return nil
	}
	if err := setAttributes(dir, attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s: %w", path, withHint(err))
	}
	return dir.Sync()
}

// Symlink implements FileSystem.
func (OS) Symlink(target, path string) error {
	dir, name, err := openParent(path, 0)
	if err != nil {
		return err
	}
	defer dir.close()
	temp := tempName(name)
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
		return withHint(&os.LinkError{Op: "symlink", Old: target, New: path, Err: err})
	}
	return dir.sync()
}

// keepOwner replaces ids of -1 by those of a regular file that exists under the name.
func (d *directory) keepOwner(name string, attrs Attributes) Attributes {
	if stat, err := d.lstat(name); err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG {
		return keepOwner(&stat, attrs)
	}
	return attrs
}

func keepOwner(stat *unix.Stat_t, attrs Attributes) Attributes {
	if attrs.UID == -1 {
		attrs.UID = int(stat.Uid)
	}
	if attrs.GID == -1 {
		attrs.GID = int(stat.Gid)
	}
	return attrs
}

func hasAttributes(stat *unix.Stat_t, attrs Attributes) bool {
	return stat.Mode&0o7777 == attrs.Mode && int(stat.Uid) == attrs.UID && int(stat.Gid) == attrs.GID
}

// hasFile reports whether there is a regular file with exactly this content and these attributes.
func (d *directory) hasFile(name string, content []byte, attrs Attributes) bool {
	stat, err := d.lstat(name)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || !hasAttributes(&stat, attrs) || stat.Size != int64(len(content)) {
		return false
	}
	file, err := d.open(name, unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	existing, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return err == nil && bytes.Equal(existing, content)
}

// replace atomically replaces a file or link, or creates the file.
func (d *directory) replace(name string, content io.Reader, attrs Attributes) (err error) {
	path := d.path + "/" + name
	if stat, err := d.lstat(name); err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return pathError("write", path, unix.EISDIR)
	}
	temp, tempName, err := d.createTemp(name)
	if err != nil {
		return withHint(err)
	}
	defer func() {
		temp.Close()
		if err != nil {
			_ = unix.Unlinkat(d.fd, tempName, 0)
		}
	}()
	if _, err := io.Copy(temp, content); err != nil {
		return err
	}
	d.copyXattrs(name, int(temp.Fd()))
	if err := setAttributes(temp, attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s: %w", path, withHint(err))
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := unix.Renameat(d.fd, tempName, d.fd, name); err != nil {
		return withHint(pathError("replace", path, err))
	}
	return d.sync()
}

// createTemp creates the temporary file for a name, with mode 0600 from the first byte on. Its name is always the same, so that the next
// write finds and removes what a power cut left; whoever writes it holds a lock on it.
func (d *directory) createTemp(name string) (*os.File, string, error) {
	temp := tempName(name)
	for try := 0; ; try++ {
		file, err := d.open(temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if errors.Is(err, unix.EEXIST) && try < 10 {
			if !d.removeStaleTemp(temp) || try >= 4 { // another writer has it, or several in turn
				temp = tempName(name + strconv.FormatUint(rand.Uint64(), 36))
			}
			continue
		}
		if err != nil {
			return nil, "", err
		}
		_ = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if d.isEntry(temp, file) || try >= 10 {
			return file, temp, nil
		}
		file.Close() // another writer took it for stale before it was locked
	}
}

// removeStaleTemp removes a temporary file unless a process holds its lock, and reports whether it is gone. A process that has created
// the file and not locked it yet notices the removal when it has the lock. The name is looked at again once the lock is held: its file may
// have been renamed meanwhile, and the name be that of another writer's.
func (d *directory) removeStaleTemp(name string) bool {
	file, err := d.open(name, unix.O_RDONLY, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return true
	case err == nil:
		defer file.Close()
		if errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return false
		}
		if !d.isEntry(name, file) {
			return true
		}
	}
	err = unix.Unlinkat(d.fd, name, 0)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// isEntry reports whether an open file is the one that has this name.
func (d *directory) isEntry(name string, file *os.File) bool {
	named, err := d.lstat(name)
	var opened unix.Stat_t
	return err == nil && unix.Fstat(int(file.Fd()), &opened) == nil && named.Ino == opened.Ino && named.Dev == opened.Dev
}

// tempName is the name of the temporary file for a name, at most NAME_MAX bytes long.
func tempName(name string) string {
	if temp := "." + name + ".tmp"; len(temp) <= unix.NAME_MAX {
		return temp
	}
	sum := sha256.Sum256([]byte(name))
	return "." + hex.EncodeToString(sum[:]) + ".tmp"
}

// copyXattrs gives a new file the extended attributes of the one that it will replace: SELinux label, ACLs and user attributes, but none
// that certifies the content (capabilities, IMA, EVM). Failures are ignored: a file without a label gets the default of its directory.
func (d *directory) copyXattrs(name string, fd int) {
	old, err := d.open(name, unix.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer old.Close()
	names := make([]byte, 64<<10)
	n, err := unix.Flistxattr(int(old.Fd()), names)
	if err != nil {
		return
	}
	value := make([]byte, 64<<10)
	for attribute := range strings.SplitSeq(string(names[:n]), "\x00") {
		switch attribute {
		case "", "security.capability", "security.ima", "security.evm":
			continue
		}
		if size, err := unix.Fgetxattr(int(old.Fd()), attribute, value); err == nil {
			_ = unix.Fsetxattr(fd, attribute, value[:size], 0)
		}
	}
}
