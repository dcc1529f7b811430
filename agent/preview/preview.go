// Package preview compares the files of a plan with those of the machine, for `plan diff`. It changes nothing. The result contains
// contents of files, which may be secrets: it is for the user who asked, never for a log.
package preview

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/aymanbagabas/go-udiff"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/printable"
	"github.com/drover-dev/drover/plans"
)

// Kind is what the plan would do to a path.
type Kind string

// The kinds of a File.
const (
	// Unchanged means that the path is as the plan wants it.
	Unchanged Kind = "unchanged"
	// Create means that nothing exists at the path.
	Create Kind = "create"
	// Change means that content, mode or owner would change.
	Change Kind = "change"
	// Replace means that a file would replace something else, such as a link or a device.
	Replace Kind = "replace"
	// Delete means that the path would be removed.
	Delete Kind = "delete"
	// Fail means that the plan would fail here.
	Fail Kind = "fail"
)

// maxDiffBytes is the size limit of contents that are compared line by line.
const maxDiffBytes = 1 << 20

// File is what the plan would do to one path.
type File struct {
	// Path is that of the plan.
	Path string `json:"path"`
	// Kind is what the plan would do.
	Kind Kind `json:"kind"`
	// Directory is set if the plan has a directory there.
	Directory bool `json:"directory,omitempty"`
	// Notes are details: changes of mode and owner, a link that is replaced, why it would fail.
	Notes []string `json:"notes,omitempty"`
	// ContentChanges is set if the content would change.
	ContentChanges bool `json:"contentChanges,omitempty"`
	// Diff is the change of the content in the unified format, if both contents are text of at most 1 MiB.
	Diff string `json:"diff,omitempty"`
}

// Files compares every file of a plan, in its order. Errors become the kind Fail.
func Files(h fs.FileSystem, files []plans.File) []File {
	out := make([]File, 0, len(files))
	for _, file := range files {
		f := File{Path: file.Path, Directory: file.Directory}
		if err := f.compare(h, file); err != nil {
			f.Kind, f.Notes = Fail, []string{err.Error()}
		}
		out = append(out, f)
	}
	return out
}

func (f *File) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

func (f *File) compare(h fs.FileSystem, file plans.File) error {
	desired, err := filestate.NewDesired(file)
	if err != nil {
		return err
	}
	d, err := filestate.Compare(h, file.Path, desired)
	if err != nil {
		return err
	}
	switch {
	case d.Same():
		f.Kind = Unchanged
		if d.Link != "" {
			f.note("is a link to %s", d.Link)
		}
		return nil
	case desired.Absent:
		f.Kind = Delete
		return nil
	case d.Current == nil:
		f.Kind = Create
		f.note("mode %04o, owner %d:%d", desired.Attrs.Mode, max(desired.Attrs.UID, 0), max(desired.Attrs.GID, 0))
		f.compareContent(nil, desired.Content)
		return nil
	case d.Kind:
		return f.compareKinds(d, desired)
	}
	f.Kind = Change
	if d.Link != "" {
		f.note("is a link to %s, which is followed", d.Link)
	}
	f.compareAttributes(d, desired.Attrs)
	if !d.Content {
		return nil
	}
	if d.Current.Size > maxDiffBytes {
		f.noteTooLarge(d.Current.Size, len(desired.Content))
		return nil
	}
	current, err := h.ReadFile(file.Path)
	if err != nil {
		return err
	}
	f.compareContent(current, desired.Content)
	return nil
}

// compareKinds handles a path where something of another kind exists.
func (f *File) compareKinds(d filestate.Difference, desired filestate.Desired) error {
	switch {
	case desired.Dir && d.Current.Link != "":
		return fmt.Errorf("is a link to %s, which is not a directory", d.Current.Link)
	case desired.Dir:
		return errors.New("is not a directory; the plan has a directory there")
	case d.Current.Dir:
		return errors.New("is a directory; the plan has a file there")
	}
	f.Kind = Replace
	if d.Current.Link != "" {
		f.note("is a link to %s, which would be replaced, not followed", d.Current.Link)
	} else {
		f.note("is not a regular file and would be replaced")
	}
	f.compareContent(nil, desired.Content)
	return nil
}

func (f *File) compareAttributes(d filestate.Difference, desired fs.Attributes) {
	if d.Mode {
		f.note("mode %04o -> %04o", d.Current.Mode, desired.Mode)
	}
	if d.Owner {
		uid, gid := desired.UID, desired.GID
		if uid == -1 {
			uid = d.Current.UID
		}
		if gid == -1 {
			gid = d.Current.GID
		}
		f.note("owner %d:%d -> %d:%d", d.Current.UID, d.Current.GID, uid, gid)
	}
}

func (f *File) noteTooLarge(current int64, desired int) {
	f.ContentChanges = true
	f.note("%d bytes -> %d bytes, too large to show", current, desired)
}

// compareContent compares the content of a file; current is nil if it does not exist.
func (f *File) compareContent(current, desired []byte) {
	if f.Directory || bytes.Equal(current, desired) {
		return
	}
	f.ContentChanges = true
	switch {
	case len(current) > maxDiffBytes || len(desired) > maxDiffBytes:
		f.noteTooLarge(int64(len(current)), len(desired))
	case !printable.IsText(current) || !printable.IsText(desired):
		f.note("%d bytes -> %d bytes, not text", len(current), len(desired))
	default:
		f.Diff = udiff.Unified(f.Path, f.Path, string(current), string(desired))
	}
}
