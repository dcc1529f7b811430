// Package preview tells what the files of a plan would change on this machine. It reads the machine through a host.Host and changes
// nothing. What it returns holds contents of files, which may be secrets: it is for the eyes of whoever asked, never for a log.
package preview

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/drover-dev/drover/agent/filestate"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// Kind is what would happen to a path.
type Kind string

// The kinds of a Change.
const (
	Unchanged Kind = "unchanged"
	Create    Kind = "create"
	Change    Kind = "change"
	// Replace puts a file where something else is: a link, a device.
	Replace Kind = "replace"
	Delete  Kind = "delete"
	// Fail means that the plan could not do it.
	Fail Kind = "fail"
)

// maxDiffBytes is up to which size contents are compared line by line.
const maxDiffBytes = 1 << 20

// File is what would happen to one path.
type File struct {
	Path      string `json:"path"`
	Kind      Kind   `json:"kind"`
	Directory bool   `json:"directory,omitempty"`
	// Notes say what else there is to know: another mode or owner, a link that is replaced, why it fails.
	Notes []string `json:"notes,omitempty"`
	// ContentChanges is set when the content would be another one; Diff is how, in the unified format, where both are text.
	ContentChanges bool   `json:"contentChanges,omitempty"`
	Diff           string `json:"diff,omitempty"`
}

// Files looks at every file of a plan, in its order.
func Files(h host.Host, files []plans.File) []File {
	out := make([]File, 0, len(files))
	for _, file := range files {
		change := File{Path: file.Path, Directory: file.Directory}
		if err := change.compare(h, file); err != nil {
			change.Kind, change.Notes = Fail, []string{err.Error()}
		}
		out = append(out, change)
	}
	return out
}

func (c *File) compare(h host.Host, file plans.File) error {
	want, err := filestate.Of(file)
	if err != nil {
		return err
	}
	d, err := filestate.Compare(h, file.Path, want)
	if err != nil {
		return err
	}
	switch {
	case d.Same():
		c.Kind = Unchanged
		if d.Link != "" {
			c.Notes = append(c.Notes, "is a link to "+d.Link)
		}
		return nil
	case want.Absent:
		c.Kind = Delete
		return nil
	case d.Is == nil:
		c.Kind = Create
		c.Notes = append(c.Notes, fmt.Sprintf("mode %04o, owner %d:%d", want.Attrs.Mode, max(want.Attrs.UID, 0), max(want.Attrs.GID, 0)))
		c.content(nil, want.Content)
		return nil
	case d.Kind:
		return c.replace(d, want)
	}
	c.Kind = Change
	if d.Link != "" {
		c.Notes = append(c.Notes, "is a link to "+d.Link+", which is followed")
	}
	c.attributes(d, want.Attrs)
	if !d.Content {
		return nil
	}
	if d.Is.Size > maxDiffBytes {
		c.tooLarge(d.Is.Size, len(want.Content))
		return nil
	}
	was, err := h.ReadFile(file.Path)
	if err != nil {
		return err
	}
	c.content(was, want.Content)
	return nil
}

// replace is about a path where something else is than what the plan has there.
func (c *File) replace(d filestate.Difference, want filestate.Wanted) error {
	switch {
	case want.Dir && d.Is.Link != "":
		return fmt.Errorf("is a link to %s, which is no folder", d.Is.Link)
	case want.Dir:
		return errors.New("is no folder, where the plan has one")
	case d.Is.Dir:
		return errors.New("is a folder, where the plan has a file")
	}
	c.Kind = Replace
	c.Notes = append(c.Notes, "is no regular file and would be replaced")
	if d.Is.Link != "" {
		c.Notes = []string{"is a link to " + d.Is.Link + ", which would be replaced, not followed"}
	}
	c.content(nil, want.Content)
	return nil
}

func (c *File) attributes(d filestate.Difference, want host.Attributes) {
	if d.Mode {
		c.Notes = append(c.Notes, fmt.Sprintf("mode %04o becomes %04o", d.Is.Mode, want.Mode))
	}
	if d.Owner {
		uid, gid := want.UID, want.GID
		if uid == -1 {
			uid = d.Is.UID
		}
		if gid == -1 {
			gid = d.Is.GID
		}
		c.Notes = append(c.Notes, fmt.Sprintf("owner %d:%d becomes %d:%d", d.Is.UID, d.Is.GID, uid, gid))
	}
}

func (c *File) tooLarge(was int64, will int) {
	c.ContentChanges = true
	c.Notes = append(c.Notes, fmt.Sprintf("%d bytes become %d, too many to show", was, will))
}

// content compares what a file holds with what it would hold; was is nil where there is none.
func (c *File) content(was, will []byte) {
	if c.Directory || bytes.Equal(was, will) {
		return
	}
	c.ContentChanges = true
	switch {
	case len(was) > maxDiffBytes || len(will) > maxDiffBytes:
		c.tooLarge(int64(len(was)), len(will))
	case !isText(was) || !isText(will):
		c.Notes = append(c.Notes, fmt.Sprintf("%d bytes become %d, which are no text", len(was), len(will)))
	default:
		c.Diff = udiff.Unified(c.Path, c.Path, string(was), string(will))
	}
}

// isText tells whether a terminal can show it: escape sequences could make it show anything.
func isText(content []byte) bool {
	return utf8.Valid(content) && !strings.ContainsFunc(string(content), func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0
	})
}
