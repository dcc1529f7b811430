package oci

import (
	"bytes"
	"io"
	"os"
)

// Entry is a file or a directory of a layer. InMemory, OnDisk and Directory make one.
type Entry struct {
	// Path in the image, without a leading or trailing slash.
	Path string
	// Mode are the permission bits, with the sticky bit as 01000.
	Mode int64
	// UID and GID own the entry; the default is root.
	UID, GID int
	// Size of the content in bytes.
	Size int64
	// Checksum is the SHA-256 that the content must have, in hexadecimal; empty accepts any.
	Checksum string
	// ChecksumSource names where the checksum comes from, for the error when it differs.
	ChecksumSource string

	// open opens the content; nil for a directory.
	open func() (io.ReadCloser, error)
}

// InMemory returns a file with this content.
func InMemory(path string, mode int64, content []byte) Entry {
	return Entry{Path: path, Mode: mode, Size: int64(len(content)), open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}

// OnDisk returns a file with the content of file, which has size bytes.
func OnDisk(path string, mode int64, file string, size int64) Entry {
	return Entry{Path: path, Mode: mode, Size: size, open: func() (io.ReadCloser, error) { return os.Open(file) }}
}

// Directory returns a directory.
func Directory(path string, mode int64) Entry { return Entry{Path: path, Mode: mode} }
