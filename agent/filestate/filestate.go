// Package filestate compares what is at a path of a machine with what a plan wants there. The engine goes by it and `plan diff` shows it, so
// that what is shown is what would be done.
package filestate

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// Wanted is what a path shall be.
type Wanted struct {
	// Absent is set where nothing shall be there; Dir where a folder shall be there, or be deleted with all that is in it.
	Absent, Dir bool
	Content     []byte
	// Attrs hold an owner of -1 where it is to stay.
	Attrs host.Attributes
}

// Of is what a file of a plan wants.
func Of(file plans.File) (Wanted, error) {
	w := Wanted{Absent: file.Action == plans.ActionDelete, Dir: file.Directory}
	if w.Absent {
		return w, nil
	}
	mode, err := file.Mode()
	if err != nil {
		return w, err
	}
	w.Attrs = host.Attributes{Mode: mode, UID: file.UID, GID: file.GID}
	if w.Dir {
		return w, nil
	}
	if w.Content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
		return w, fmt.Errorf("decoding content: %w", err)
	}
	return w, nil
}

// Difference is how a path differs from what is wanted.
type Difference struct {
	// Is is what is there, nil for nothing. Where a folder is wanted and a link leads to one, it is that folder, and Link the link.
	Is   *host.Info
	Link string
	// Kind is set where something else is there than what is wanted, nothing included. Mode, Owner and Content tell what differs of the same kind.
	Kind, Mode, Owner, Content bool
}

// Same tells that nothing is to be done.
func (d Difference) Same() bool {
	return !d.Kind && !d.Mode && !d.Owner && !d.Content
}

// Compare looks at a path.
func Compare(h host.Host, path string, w Wanted) (Difference, error) {
	info, err := h.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return Difference{Kind: !w.Absent}, nil
	}
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Is: &info}
	if w.Dir && !w.Absent && info.Link != "" {
		if behind, err := h.Lstat(path + "/."); err == nil && behind.Dir {
			d.Is, d.Link = &behind, info.Link
		}
	}
	plain := !d.Is.Dir && !d.Is.Other && d.Is.Link == ""
	if w.Absent || w.Dir && !d.Is.Dir || !w.Dir && !plain {
		d.Kind = true
		return d, nil
	}
	d.Mode = d.Is.Mode != w.Attrs.Mode
	d.Owner = !fits(w.Attrs.UID, d.Is.UID) || !fits(w.Attrs.GID, d.Is.GID)
	if w.Dir {
		return d, nil
	}
	if d.Content = d.Is.Size != int64(len(w.Content)); d.Content {
		return d, nil
	}
	raw, err := h.ReadFile(path)
	d.Content = !bytes.Equal(raw, w.Content)
	return d, err
}

// fits tells whether an owner is the wanted one; -1 wants none.
func fits(wanted, is int) bool {
	return wanted == -1 || wanted == is
}
