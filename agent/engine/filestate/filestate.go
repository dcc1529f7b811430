// Package filestate is about one path of a machine: what a plan wants there, how that differs from what is there, and how to get from one
// to the other and back. The engine applies files with it and `plan diff` shows them with it, so that what is shown is what would be done.
// It keeps no state of its own: the journal remembers backups.
package filestate

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// Desired is what a plan wants at a path.
type Desired struct {
	// Absent is set where nothing shall be. Dir is set where a folder shall be, or, with Absent, be deleted with everything in it.
	Absent, Dir bool
	// Content is that of a file.
	Content []byte
	// Attrs are those of a file or folder; an owner of -1 stays as it is.
	Attrs fs.Attributes
}

// NewDesired is what a file of a plan wants. It fails on permissions that are not octal and content that is not base64.
func NewDesired(file plans.File) (Desired, error) {
	d := Desired{Absent: file.Action == plans.ActionDelete, Dir: file.Directory}
	if d.Absent {
		return d, nil
	}
	mode, err := file.Mode()
	if err != nil {
		return d, err
	}
	d.Attrs = fs.Attributes{Mode: mode, UID: file.UID, GID: file.GID}
	if d.Dir {
		return d, nil
	}
	if d.Content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
		return d, fmt.Errorf("decoding content: %w", err)
	}
	return d, nil
}

// Difference is how a path differs from what is desired.
type Difference struct {
	// Current is what is there, nil for nothing. Where a folder is desired and a link leads to one, Current is that folder.
	Current *fs.Info
	// Link is the target of the link that leads to Current; empty without one.
	Link string
	// Kind is set where something of another kind is there than desired, nothing included. Mode, Owner and Content are set where that
	// differs of something of the same kind.
	Kind, Mode, Owner, Content bool
}

// Same says that nothing is to be done.
func (d Difference) Same() bool {
	return !d.Kind && !d.Mode && !d.Owner && !d.Content
}

// Compare compares a path with what is desired there. Content is compared only when kind and size are equal.
func Compare(h fs.FileSystem, path string, desired Desired) (Difference, error) {
	info, err := h.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return Difference{Kind: !desired.Absent}, nil
	}
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Current: &info}
	if desired.Dir && !desired.Absent && info.Link != "" {
		if behind, err := h.Lstat(path + "/."); err == nil && behind.Dir {
			d.Current, d.Link = &behind, info.Link
		}
	}
	regular := !d.Current.Dir && !d.Current.Other && d.Current.Link == ""
	if desired.Absent || desired.Dir && !d.Current.Dir || !desired.Dir && !regular {
		d.Kind = true
		return d, nil
	}
	d.Mode = d.Current.Mode != desired.Attrs.Mode
	d.Owner = !ownerMatches(desired.Attrs.UID, d.Current.UID) || !ownerMatches(desired.Attrs.GID, d.Current.GID)
	if desired.Dir {
		return d, nil
	}
	if d.Content = d.Current.Size != int64(len(desired.Content)); d.Content {
		return d, nil
	}
	raw, err := h.ReadFile(path)
	d.Content = !bytes.Equal(raw, desired.Content)
	return d, err
}

// ownerMatches compares a user or group; -1 matches any.
func ownerMatches(desired, current int) bool {
	return desired == -1 || desired == current
}

// Apply brings a path into the desired state, given the backup of what was there.
func Apply(h fs.FileSystem, path string, desired Desired, backup Backup) error {
	switch {
	case backup.MovedTo != "":
		return moveAway(h, path, backup.MovedTo)
	case desired.Absent && desired.Dir:
		return h.RemoveAll(path)
	case desired.Absent:
		return h.Remove(path)
	case desired.Dir:
		return h.MkdirAll(path, desired.Attrs)
	}
	return h.WriteFile(path, desired.Content, desired.Attrs)
}

// moveAway renames a folder. One that cannot be renamed, such as a mount point, is removed at once.
func moveAway(h fs.FileSystem, path, to string) error {
	if _, err := h.Lstat(to); err == nil {
		return h.RemoveAll(path) // it was moved before; what is there was made later
	}
	err := h.Rename(path, to)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) {
		return h.RemoveAll(path)
	}
	return err
}

// IsDir reports whether a folder is at path.
func IsDir(h fs.FileSystem, path string) bool {
	info, err := h.Lstat(path)
	return err == nil && info.Dir
}
