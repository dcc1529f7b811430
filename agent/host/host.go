// Package host is the only part of the agent that touches the machine: files, processes, and the service manager. It does what it is
// told and decides nothing; it knows neither plans nor the hub. Package fake beside it is a machine in memory for tests.
package host

import (
	"context"
	"io"
	"time"
)

// Host is everything the agent may do to its machine. Whatever changes the disk is on the disk, synced, when the call returns.
type Host interface {
	// ReadFile reads a file whole.
	ReadFile(path string) ([]byte, error)
	// ReadDir lists the names in a folder, sorted; a missing folder has none.
	ReadDir(path string) ([]string, error)
	// WriteFile replaces a file as a whole, making missing parents. A file that is so already is left alone.
	WriteFile(path string, content []byte, attrs Attributes) error
	// WriteStream writes a file of mode 0600 from a reader, as a whole: when reading fails there is no file.
	WriteStream(path string, content io.Reader) error
	// OpenFile opens a file for reading.
	OpenFile(path string) (io.ReadCloser, error)
	// AppendFile adds to the end of a file of mode 0600, making it when it is missing.
	AppendFile(path string, content []byte) error
	// MakeDir makes a folder and its missing parents; a folder that exists gets the attributes too.
	MakeDir(path string, attrs Attributes) error
	// Remove removes a file or an empty folder; a missing one is fine.
	Remove(path string) error
	// RemoveAll removes a path and everything below; a missing one is fine.
	RemoveAll(path string) error
	// Unpack applies a layer of an image, an uncompressed tar stream, to a folder that exists. Nothing outside the folder is
	// touched, whatever the stream holds.
	Unpack(ctx context.Context, dir string, layer io.Reader) error
	// Run runs a program to its end.
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

// Command is a program to run. It gets no standard input.
type Command struct {
	// Path is looked up in the PATH of Env, as execvp(3) would; one with a slash is relative to Dir.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	Dir string
	// Timeout ends the program and everything in its process group; 0 means none.
	Timeout time.Duration
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
}
