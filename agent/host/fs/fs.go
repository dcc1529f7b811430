// Package fs reads and changes files of the machine. Every change is atomic, owned and labelled as asked for, and synced to the disk before
// the call returns; symbolic links that others than root control are never followed. It does what it is told and decides nothing.
package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// FileSystem is what the agent may do to files. Paths are absolute. Changes are on the disk, synced, when the call returns, except those
// of Unpack. A method that changes something follows a symbolic link in a parent directory only if root alone can have created it;
// otherwise it returns a *LinkError. Errors wrap those of the system calls, so that errors.Is finds io/fs.ErrNotExist or syscall.ENOSPC.
// Package testenv/hosttest holds the tests that every implementation passes.
type FileSystem interface {
	// ReadFile returns the content of a regular file of at most MaxReadBytes.
	ReadFile(path string) ([]byte, error)
	// ReadDir returns the sorted names in a directory; none if it does not exist.
	ReadDir(path string) ([]string, error)
	// Open opens a regular file for reading.
	Open(path string) (io.ReadCloser, error)
	// Lstat describes what is at a path, without following a link there.
	Lstat(path string) (Info, error)
	// WriteFile replaces a file atomically. Missing parents are created with mode 0755. A file that has this content and these attributes
	// already is not touched. A link at path is replaced, not followed.
	WriteFile(path string, content []byte, attrs Attributes) error
	// WriteStream is WriteFile for content of any size. If reading it fails, the existing file stays as it is.
	WriteStream(path string, content io.Reader, attrs Attributes) error
	// AppendFile appends to a file, and creates it with mode 0600 if it is missing. A failure leaves the file as it was.
	AppendFile(path string, content []byte) error
	// AppendStream is AppendFile for content of any size. It returns how many bytes were appended; if reading fails, those stay.
	AppendStream(path string, content io.Reader) (int64, error)
	// MkdirAll creates a directory with these attributes, and its missing parents with mode 0755. One that exists gets the attributes.
	MkdirAll(path string, attrs Attributes) error
	// Symlink creates a symbolic link, replacing a file or link at path.
	Symlink(target, path string) error
	// Rename moves a file or directory within a file system, as rename(2) does.
	Rename(from, to string) error
	// Remove removes a file or an empty directory; a missing one is fine.
	Remove(path string) error
	// RemoveAll removes a path and everything below it; a missing one is fine. It fails if something is mounted there.
	RemoveAll(path string) error
	// Unpack applies a layer of an image, an uncompressed tar stream, to an existing directory. Nothing outside of the directory is
	// touched, whatever the stream contains. The result is durable only after Sync, so that all layers of an image are synced at once.
	Unpack(ctx context.Context, dir string, layer io.Reader) error
	// Sync makes a directory and everything in it durable.
	Sync(dir string) error
	// Lock locks a file until unlock is called or the process ends. If another process holds the lock, the error wraps ErrLocked and names
	// its pid.
	Lock(path string) (unlock func(), err error)
}

// OS is the FileSystem of the machine that the agent runs on.
type OS struct{}

var _ FileSystem = OS{}

// MaxReadBytes is the size limit of ReadFile.
const MaxReadBytes = 64 << 20

// Attributes of a file or directory.
type Attributes struct {
	// Mode holds the twelve bits of chmod(2).
	Mode uint32
	// UID and GID are the owner. -1 keeps that of an existing file; a new one gets the ids of the agent.
	UID, GID int
}

// WithMode returns Attributes that set a mode and no owner.
func WithMode(mode uint32) Attributes {
	return Attributes{Mode: mode, UID: -1, GID: -1}
}

// Info is what Lstat finds at a path.
type Info struct {
	Attributes
	// Size is in bytes; of a link that of its target's name.
	Size int64
	// Modified is the last change of the content, or of the entries of a directory.
	Modified time.Time
	// Dir is set for a directory.
	Dir bool
	// Link is the target of a symbolic link, otherwise empty.
	Link string
	// Other is set for what is neither regular file, directory nor link.
	Other bool
}

// ErrLocked is wrapped by the errors of Lock and Listen if another process holds the lock.
var ErrLocked = errors.New("only one agent may use it at a time")

// LinkError reports a symbolic link in a parent directory that was not followed, because others than root could have created it.
type LinkError struct {
	// Path is the link.
	Path string
	// Untrusted is the file or directory that others than root can change: the link itself or a parent.
	Untrusted string
}

// Error implements error.
func (e *LinkError) Error() string {
	return fmt.Sprintf("not following symbolic link %s: users other than root can change %s; "+
		"use the real path, or make root the owner and remove write permission for group and others", e.Path, e.Untrusted)
}

// withHint adds to an error what its errno means here, where the text of the errno says too little.
func withHint(err error) error {
	hints := map[unix.Errno]string{
		unix.EROFS: "the file system is mounted read-only",
		unix.EPERM: "the file or its directory is immutable (see lsattr), or a security module forbids it",
		unix.EBUSY: "it is a mount point or in use; unmount it first",
		unix.EXDEV: "source and destination are on different file systems",
	}
	var errno unix.Errno
	if errors.As(err, &errno) && hints[errno] != "" {
		return fmt.Errorf("%w: %s", err, hints[errno])
	}
	return err
}
