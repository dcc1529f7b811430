package engine

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// fileTime is how long one file may take before the executor counts as stuck.
const fileTime = 10 * time.Minute

// files brings all files into their state. What is so already costs nothing; before any other changes, what is there is kept and the
// journal told. A line about one file says that all before it are in place.
func (w *work) files(ctx context.Context, r record) error {
	if len(w.plan.Files) == 0 || r.FilesDone {
		return nil
	}
	w.progress.phase(plans.PhaseFiles, 0, len(w.plan.Files), "")
	for i := r.Files; i < len(w.plan.Files); i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		file := w.plan.Files[i]
		w.engine.board.step("placing "+file.Path, fileTime)
		if err := w.place(i, file); err != nil {
			return fmt.Errorf("files[%d]: %s: %w", i, file.Path, err)
		}
	}
	// An image is not waited for with this; what runs at once is journaled together with it.
	w.note(entry{Kind: kindFiles})
	if len(w.plan.Instructions) > 0 && w.plan.Instructions[0].Image == "" {
		return nil
	}
	return w.flush()
}

// place brings one file or folder into its state.
func (w *work) place(i int, file plans.File) error {
	e := w.engine
	if !filepath.IsAbs(file.Path) {
		return errors.New("the path is not absolute on this machine")
	}
	target, err := targetOf(file)
	if err != nil {
		return err
	}
	is, same, err := e.compare(file.Path, target)
	if err != nil || same {
		return err
	}
	kept, err := w.keep(i, file, is, target)
	if err != nil {
		return err
	}
	switch {
	case kept.Aside != "":
		return e.moveAside(file.Path, kept.Aside)
	case target.absent && target.dir:
		return e.Host.RemoveAll(file.Path)
	case target.absent:
		return e.Host.Remove(file.Path)
	case target.dir:
		return e.Host.MakeDir(file.Path, target.attrs)
	}
	return e.Host.WriteFile(file.Path, target.content, target.attrs)
}

// targetState is what a path shall be.
type targetState struct {
	absent, dir bool
	content     []byte
	attrs       host.Attributes
}

func targetOf(file plans.File) (targetState, error) {
	t := targetState{dir: file.Directory}
	if file.Action == plans.ActionDelete {
		t.absent = true
		return t, nil
	}
	mode, err := file.Mode()
	if err != nil {
		return t, err
	}
	t.attrs = host.Attributes{Mode: mode, UID: file.UID, GID: file.GID}
	if t.dir {
		return t, nil
	}
	if t.content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
		return t, fmt.Errorf("decoding content: %w", err)
	}
	return t, nil
}

// compare tells what is at a path, nil for nothing, and whether that is what it shall be.
func (e *Engine) compare(path string, t targetState) (*host.Info, bool, error) {
	info, err := e.Host.Lstat(path)
	if isNotExist(err) || isNotDir(err) {
		return nil, t.absent, nil
	}
	if err != nil {
		return nil, false, err
	}
	plain := !info.Dir && !info.Other && info.Link == ""
	owned := info.Mode == t.attrs.Mode && fits(t.attrs.UID, info.UID) && fits(t.attrs.GID, info.GID)
	switch {
	case t.absent || !owned || t.dir != info.Dir:
		return &info, false, nil
	case t.dir:
		return &info, true, nil
	case !plain || info.Size != int64(len(t.content)):
		return &info, false, nil
	}
	raw, err := e.Host.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	return &info, bytes.Equal(raw, t.content), nil
}

// fits tells whether an owner is the wanted one; -1 wants none.
func fits(wanted, is int) bool {
	return wanted == -1 || wanted == is
}
