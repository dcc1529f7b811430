// Package preview tells what the files of a plan would change on this machine. It reads the machine through a host.Host and changes
// nothing. What it returns holds contents of files, which may be secrets: it is for the eyes of whoever asked, never for a log.
package preview

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

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
	info, err := h.Lstat(file.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if file.Action == plans.ActionDelete {
		c.Kind = Delete
		if missing {
			c.Kind = Unchanged
		}
		return nil
	}
	mode, err := file.Mode()
	if err != nil {
		return err
	}
	want := host.Attributes{Mode: mode, UID: file.UID, GID: file.GID}
	var content []byte
	if !file.Directory {
		if content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
			return fmt.Errorf("decoding content: %w", err)
		}
	}
	switch {
	case missing:
		c.Kind = Create
		c.Notes = append(c.Notes, fmt.Sprintf("mode %04o, owner %d:%d", mode, max(want.UID, 0), max(want.GID, 0)))
		c.content(nil, content)
		return nil
	case file.Directory:
		return c.directory(h, info, want)
	case info.Dir:
		return errors.New("is a folder, where the plan has a file")
	case info.Link != "" || info.Other:
		c.Kind = Replace
		c.Notes = append(c.Notes, "is no regular file and would be replaced")
		if info.Link != "" {
			c.Notes = []string{"is a link to " + info.Link + ", which would be replaced, not followed"}
		}
		c.content(nil, content)
		return nil
	}
	was, err := h.ReadFile(file.Path)
	if err != nil {
		return err
	}
	c.Kind = Unchanged
	c.attributes(info.Attributes, want)
	c.content(was, content)
	return nil
}

func (c *File) directory(h host.Host, info host.Info, want host.Attributes) error {
	c.Kind = Unchanged
	if info.Link != "" {
		// A link to a folder is fine; what it leads to gets owner and mode.
		if _, err := h.ReadDir(c.Path); err != nil {
			return fmt.Errorf("is a link to %s, which is no folder", info.Link)
		}
		c.Notes = append(c.Notes, "is a link to "+info.Link)
		return nil
	}
	if !info.Dir {
		return errors.New("is no folder, where the plan has one")
	}
	c.attributes(info.Attributes, want)
	return nil
}

func (c *File) attributes(was, want host.Attributes) {
	if was.Mode != want.Mode {
		c.Kind = Change
		c.Notes = append(c.Notes, fmt.Sprintf("mode %04o becomes %04o", was.Mode, want.Mode))
	}
	uid, gid := want.UID, want.GID
	if uid == -1 {
		uid = was.UID
	}
	if gid == -1 {
		gid = was.GID
	}
	if was.UID != uid || was.GID != gid {
		c.Kind = Change
		c.Notes = append(c.Notes, fmt.Sprintf("owner %d:%d becomes %d:%d", was.UID, was.GID, uid, gid))
	}
}

// content compares what a file holds with what it would hold; was is nil where there is none.
func (c *File) content(was, will []byte) {
	if c.Directory || bytes.Equal(was, will) {
		return
	}
	if c.Kind == Unchanged {
		c.Kind = Change
	}
	c.ContentChanges = true
	switch {
	case len(was) > maxDiffBytes || len(will) > maxDiffBytes:
		c.Notes = append(c.Notes, fmt.Sprintf("%d bytes become %d, too many to show", len(was), len(will)))
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
