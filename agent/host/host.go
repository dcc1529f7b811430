// Package host is the only part of the agent that touches the machine: files, processes, and the service manager. It does what it is
// told and decides nothing; it knows neither plans nor the hub. Package fake beside it is a machine in memory for tests.
package host

import (
	"context"
	"errors"
	"io"
	"time"
)

// Host is everything the agent may do to its machine. Whatever changes the disk is on the disk, synced, when the call returns, but for
// Unpack. Package hosttest says in tests what each method does, of every implementation.
type Host interface {
	// ReadFile reads a file whole.
	ReadFile(path string) ([]byte, error)
	// ReadDir lists the names in a folder, sorted; a missing folder has none.
	ReadDir(path string) ([]string, error)
	// WriteFile replaces a file as a whole. Missing parents are made with mode 0755, the agent's own. A file that is so already is left alone. As in all methods that
	// change something, a link on the way is followed only when root alone can have put it there; any other is a LinkError.
	WriteFile(path string, content []byte, attrs Attributes) error
	// WriteStream does so with a file of any size: when reading fails, what was there stays.
	WriteStream(path string, content io.Reader, attrs Attributes) error
	// AppendStream adds to the end of a file of mode 0600 from a reader, making it when it is missing, and tells how many bytes it
	// added. What came before reading failed stays.
	AppendStream(path string, content io.Reader) (int64, error)
	// OpenFile opens a file for reading.
	OpenFile(path string) (io.ReadCloser, error)
	// AppendFile adds to the end of a file of mode 0600, making it when it is missing.
	AppendFile(path string, content []byte) error
	// MakeDir makes a folder, and its missing parents as WriteFile does; a folder that exists gets the attributes too.
	MakeDir(path string, attrs Attributes) error
	// Remove removes a file or an empty folder; a missing one is fine.
	Remove(path string) error
	// RemoveAll removes a path and everything below; a missing one is fine. Where something is mounted nothing is removed.
	RemoveAll(path string) error
	// Unpack applies a layer of an image, an uncompressed tar stream, to a folder that exists. Nothing outside the folder is
	// touched, whatever the stream holds. It is on the disk only after Sync, so that the layers of an image are waited for once.
	Unpack(ctx context.Context, dir string, layer io.Reader) error
	// Sync returns when a folder and everything in it is on the disk.
	Sync(dir string) error
	// Lstat tells what is at a path, without following a link there.
	Lstat(path string) (Info, error)
	// Rename moves a file or folder to another name on the same file system.
	Rename(from, to string) error
	// Symlink makes a symbolic link, in the place of a file or link that is there.
	Symlink(target, path string) error
	// Lock takes a file as a lock until unlock is called or the process ends, however it ends. Where another process holds it, the error
	// wraps ErrLocked and names that process.
	Lock(path string) (unlock func(), err error)
	// Run runs a program to its end. With a Spool it is run at most once: what has ended is not run again but told again, and what
	// still runs is waited for. When ctx ends with the cause ErrLeave, a program in a unit of its own is left running and ErrLeave comes
	// back; with any other cause it is ended, with everything that it has started, and ctx's error comes back. With a ctx that has ended
	// already nothing is started, but what still runs is ended.
	Run(ctx context.Context, command Command) (Result, error)
	// Notify tells the service manager, in the words of sd_notify(3); without one it does nothing.
	Notify(state string)
}

// Attributes of a file or folder.
type Attributes struct {
	// Mode holds the twelve bits of chmod(2).
	Mode uint32
	// UID and GID own it; -1 leaves them as they are.
	UID, GID int
}

// Private is for the agent's own files.
func Private(mode uint32) Attributes {
	return Attributes{Mode: mode, UID: -1, GID: -1}
}

// ErrLeave is the cause with which a context ends when the agent stops and what runs in a unit of its own is to go on.
var ErrLeave = errors.New("the agent stops and leaves its programs running")

// ErrLocked is wrapped by Lock's error when another process holds the lock.
var ErrLocked = errors.New("only one agent may use it at a time")

// ErrStillRunning is wrapped by Run's error when a program was to be ended and something of it is still there.
var ErrStillRunning = errors.New("the program could not be ended")

// Info is what is at a path.
type Info struct {
	Attributes
	Size int64
	// Modified is when the content, or the list of a folder's entries, was changed last.
	Modified time.Time
	// Dir is set for a folder, Link is the target of a symbolic link, Other is set for what is neither file, folder nor link.
	Dir   bool
	Link  string
	Other bool
}

// Command is a program to run.
type Command struct {
	// Path is looked up in the PATH of Env, as execvp(3) would; one with a slash is relative to Dir.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	Dir string
	// Timeout ends the program and everything that it has started; 0 means none.
	Timeout time.Duration
	// Stdin is the standard input; nil means none.
	Stdin []byte
	// Spool is a folder that keeps the output, up to some dozen MiB, and the result of this one run; empty keeps nothing, and the
	// program ends with the agent. Running another program needs another folder.
	Spool string
	// Unit is the name of a transient unit of the service manager, without suffix, in which a program with a Spool runs where
	// that is possible, so that it survives the agent; empty runs it below the agent.
	Unit string
	// Progress is told how much the program has written, once a second at most and from another goroutine, but not after Run has
	// returned; nil tells nobody.
	Progress func(outputBytes int64)
}

// Result is the end of a program.
type Result struct {
	// ExitCode is the program's own, or -1 when a signal ended it.
	ExitCode int
	// Stdout and Stderr hold the beginning and the end of what was written, with a note about what is left out between.
	Stdout []byte
	Stderr []byte
	// TimedOut is set when the Timeout ended it.
	TimedOut bool
	// Resumed is set when the program had been started by an earlier process of the agent.
	Resumed bool
}
