package host

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

// WriteFile implements Host: temporary file in the same folder, owner, mode, sync, rename, sync of the folder. A link in the file's
// place is replaced, not followed; about links on the way see openFolder.
func (Machine) WriteFile(path string, content []byte, attrs Attributes) error {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return explain(err)
	}
	defer dir.close()
	attrs, same := dir.compare(name, content, attrs)
	if same {
		return nil
	}
	return dir.replace(name, bytes.NewReader(content), attrs)
}

// WriteStream implements Host.
func (Machine) WriteStream(path string, content io.Reader, attrs Attributes) error {
	dir, name, err := openParent(path, parentMode)
	if err != nil {
		return explain(err)
	}
	defer dir.close()
	if stat, err := dir.lstat(name); err == nil {
		attrs = owned(attrs, &stat)
	}
	return dir.replace(name, content, attrs)
}

// owned fills in an owner that is to stay.
func owned(attrs Attributes, stat *unix.Stat_t) Attributes {
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return attrs
	}
	if attrs.UID == -1 {
		attrs.UID = int(stat.Uid)
	}
	if attrs.GID == -1 {
		attrs.GID = int(stat.Gid)
	}
	return attrs
}

// compare tells whether the file is so already, and fills in an owner that is to stay.
func (f *folder) compare(name string, content []byte, attrs Attributes) (Attributes, bool) {
	stat, err := f.lstat(name)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return attrs, false
	}
	attrs = owned(attrs, &stat)
	if stat.Mode&0o7777 != attrs.Mode || int(stat.Uid) != attrs.UID || int(stat.Gid) != attrs.GID || stat.Size != int64(len(content)) {
		return attrs, false
	}
	file, err := f.file(name, unix.O_RDONLY, 0)
	if err != nil {
		return attrs, false
	}
	defer file.Close()
	existing, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return attrs, err == nil && bytes.Equal(existing, content)
}

// replace puts a new file into the place of whatever file or link is there.
func (f *folder) replace(name string, content io.Reader, attrs Attributes) (err error) {
	if stat, err := f.lstat(name); err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return &os.PathError{Op: "write", Path: f.path + "/" + name, Err: unix.EISDIR}
	}
	temp, tempName, err := f.temporary(name)
	if err != nil {
		return explain(err)
	}
	defer func() {
		temp.Close()
		if err != nil {
			_ = unix.Unlinkat(f.fd, tempName, 0)
		}
	}()
	if _, err := io.Copy(temp, content); err != nil {
		return err
	}
	f.keepLabels(name, int(temp.Fd()))
	if err := setAttributes(int(temp.Fd()), attrs); err != nil {
		return fmt.Errorf("setting owner and mode of %s/%s: %w", f.path, name, explain(err))
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := unix.Renameat(f.fd, tempName, f.fd, name); err != nil {
		return explain(&os.PathError{Op: "replace", Path: f.path + "/" + name, Err: err})
	}
	return f.sync()
}

// temporary makes a file beside another one. Its name is always the same, so that one that was left when the machine stopped is found and
// removed the next time; while a process writes it, it holds a lock on it. It has mode 0600 from the first byte: nobody reads a secret.
func (f *folder) temporary(name string) (*os.File, string, error) {
	temp := temporaryName(name)
	for try := 0; ; try++ {
		file, err := f.file(temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if errors.Is(err, unix.EEXIST) && try < 10 {
			if !f.removeLeft(temp) {
				temp = temporaryName(name + strconv.FormatUint(rand.Uint64(), 36))
			}
			continue
		}
		if err != nil {
			return nil, "", err
		}
		_ = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if f.holds(temp, file) || try >= 10 {
			return file, temp, nil
		}
		file.Close() // it was taken for a left one before it was locked
	}
}

// removeLeft removes a temporary file that nobody writes, and tells whether it did. Whoever made it at this moment and has not locked it
// yet sees, once it has the lock, that it is gone.
func (f *folder) removeLeft(name string) bool {
	if file, err := f.file(name, unix.O_RDONLY, 0); err == nil {
		defer file.Close()
		if errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			return false
		}
	}
	err := unix.Unlinkat(f.fd, name, 0)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// holds tells whether an open file is the one with this name.
func (f *folder) holds(name string, file *os.File) bool {
	named, err := f.lstat(name)
	var opened unix.Stat_t
	return err == nil && unix.Fstat(int(file.Fd()), &opened) == nil && named.Ino == opened.Ino && named.Dev == opened.Dev
}

// maxName is the longest name that file systems take.
const maxName = 255

func temporaryName(name string) string {
	if temp := "." + name + ".tmp"; len(temp) <= maxName {
		return temp
	}
	sum := sha256.Sum256([]byte(name))
	return "." + hex.EncodeToString(sum[:]) + ".tmp"
}

// keepLabels gives a file the extended attributes of the one that it will replace: the SELinux label, access lists, and what users have
// set. Those that vouch for the content are left out. A new file gets its label from the folder; where the file system has no
// attributes there is nothing to keep.
func (f *folder) keepLabels(name string, fd int) {
	old, err := f.file(name, unix.O_RDONLY, 0)
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
