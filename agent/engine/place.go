package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/filestate"
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
	target, err := filestate.Of(file)
	if err != nil {
		return err
	}
	difference, err := filestate.Compare(e.Host, file.Path, target)
	if err != nil || difference.Same() {
		return err
	}
	kept, err := w.keep(i, file, difference.Is, target)
	if err != nil {
		return err
	}
	switch {
	case kept.Aside != "":
		return e.moveAside(file.Path, kept.Aside)
	case target.Absent && target.Dir:
		return e.Host.RemoveAll(file.Path)
	case target.Absent:
		return e.Host.Remove(file.Path)
	case target.Dir:
		return e.Host.MakeDir(file.Path, target.Attrs)
	}
	return e.Host.WriteFile(file.Path, target.Content, target.Attrs)
}
