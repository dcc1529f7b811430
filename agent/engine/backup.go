package engine

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/drover-dev/drover/agent/filestate"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

const backups = "backup"

// keep keeps what is at a path and tells the journal, before the path is changed for the first time. What an earlier try, or this one
// before a crash, has kept stays.
func (w *work) keep(i int, file plans.File, is *host.Info, t filestate.Wanted) (was, error) {
	e := w.engine
	r := e.journal.now()
	if kept, known := r.Kept[i]; known {
		if i > 0 && r.Files == i {
			return kept, nil
		}
		return kept, e.journal.add(entry{Kind: kindFile, Index: i})
	}
	kept, err := e.former(r, i, file, is, t)
	if err != nil {
		return kept, fmt.Errorf("keeping what is there: %w", err)
	}
	return kept, e.journal.add(entry{Kind: kindFile, Index: i, Was: &kept})
}

// former makes a copy of what is at a path, or says where it will be moved.
func (e *Engine) former(r record, i int, file plans.File, is *host.Info, t filestate.Wanted) (was, error) {
	name := fmt.Sprintf("%s-%d-%d", short(r.Checksum), r.Attempt, i)
	switch {
	case is == nil:
		return was{}, nil
	case is.Link != "":
		return was{Link: is.Link, Attrs: is.Attributes}, nil
	case is.Dir && t.Absent && t.Dir:
		dir, base := filepath.Split(filepath.Clean(file.Path))
		return was{Aside: dir + "." + base + ".system-agent-" + name, Attrs: is.Attributes}, nil
	case is.Dir:
		return was{Dir: true, Attrs: is.Attributes}, nil
	case is.Other:
		return was{Unknown: true}, nil
	}
	content, err := e.Host.OpenFile(file.Path)
	if err != nil {
		return was{}, err
	}
	defer content.Close()
	path := filepath.Join(e.StateDirectory, backups, name)
	return was{Copy: path, Attrs: is.Attributes}, e.Host.WriteStream(path, content, host.Private(0o600))
}

// moveAside takes a folder out of the way. One that cannot be moved, as a mount point cannot, is removed at once.
func (e *Engine) moveAside(path, aside string) error {
	if _, err := e.Host.Lstat(aside); err == nil {
		return e.Host.RemoveAll(path) // it was moved before; what is there came later
	}
	err := e.Host.Rename(path, aside)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) {
		return e.Host.RemoveAll(path)
	}
	return err
}

// mustUndo tells whether the files are to be put back: the plan asks for it, and the agent will not try again by itself, or the hub is
// told of each try as a failure.
func (w *work) mustUndo(fail *failure) bool {
	r := w.engine.journal.now()
	if !w.plan.Rollback || len(r.Kept) == 0 {
		return false
	}
	r.Final = fail.final
	return r.Undoing || r.Revision == 0 || r.lastTry(r.MaxFailures)
}

// undo puts back what the plan has changed, the last first, and tells what to report. The journal knows of it before, so that a crash
// does not leave half of it.
func (w *work) undo(end entry) (done bool, message, summary string) {
	e := w.engine
	r := e.journal.now()
	if !r.Undoing {
		if err := w.flush(entry{Kind: kindUndo, Final: end.Final, Message: end.Message, Summary: end.Summary}); err != nil {
			return false, end.Message + "; the files were not put back: " + err.Error(), end.Summary + "; the files were not put back"
		}
	}
	var failures []error
	order := slices.Sorted(maps.Keys(r.Kept))
	slices.Reverse(order)
	for _, i := range order[min(r.Undone, len(order)):] {
		file := w.plan.Files[i]
		e.board.step("putting back "+file.Path, fileTime)
		if err := e.restore(file, r.Kept[i]); err != nil {
			failures = append(failures, fmt.Errorf("files[%d]: %s: %w", i, file.Path, err))
		}
		// What comes next may lie above this one, which must not be touched again then.
		if err := e.journal.add(entry{Kind: kindUndone}); err != nil {
			failures = append(failures, err)
			break
		}
	}
	if err := errors.Join(failures...); err != nil {
		e.Log.Error("Not all files could be put back", "error", err)
		return false, end.Message + "; not all files could be put back: " + err.Error(), end.Summary + "; not all files could be put back"
	}
	return true, end.Message + "; the files were put back", end.Summary + "; the files were put back"
}

// restore puts back what was at the path of a file.
func (e *Engine) restore(file plans.File, kept was) error {
	switch {
	case kept.Unknown:
		return errors.New("what was there before cannot be made again")
	case kept.Copy != "":
		content, err := e.Host.OpenFile(kept.Copy)
		if err != nil {
			return err
		}
		defer content.Close()
		return e.Host.WriteStream(file.Path, content, kept.Attrs)
	case kept.Aside != "":
		return e.putBack(file.Path, kept.Aside)
	case kept.Link != "":
		return e.Host.Symlink(kept.Link, file.Path)
	case kept.Dir:
		return e.Host.MakeDir(file.Path, kept.Attrs)
	case file.Directory:
		err := e.Host.Remove(file.Path)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			return nil // what others have put there since is not the plan's
		}
		return err
	}
	return e.Host.Remove(file.Path)
}

func (e *Engine) putBack(path, aside string) error {
	if _, err := e.Host.Lstat(aside); err != nil {
		if isNotExist(err) && e.isDir(path) {
			return nil // it is back already, or was never moved
		}
		return err
	}
	if err := e.Host.RemoveAll(path); err != nil {
		return err
	}
	return e.Host.Rename(aside, path)
}

// dropKept removes what was kept for an attempt that is over and can be undone no more. After a failure it stays for people, until the
// next plan.
func (e *Engine) dropKept(r record) {
	if r.Succeeded || r.RolledBack {
		e.drop(r.Kept)
	}
}

// dropFormer removes what was kept for the delivery before this one.
func (e *Engine) dropFormer() {
	e.drop(e.journal.takeFormer())
}

func (e *Engine) drop(kept map[int]was) {
	for _, k := range kept {
		for _, path := range []string{k.Copy, k.Aside} {
			if path == "" {
				continue
			}
			if err := e.Host.RemoveAll(path); err != nil {
				e.Log.Warn("What was kept of a former plan cannot be removed", "path", path, "error", err)
			}
		}
	}
}

// takeFormer gives, once, what the delivery before the current one has kept.
func (j *journal) takeFormer() map[int]was {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.former == nil || j.former.record.delivery() == j.record.delivery() && len(j.record.Kept) > 0 {
		return nil
	}
	r := j.former.record
	j.former = nil
	if r.Succeeded || r.RolledBack {
		return nil
	}
	return r.Kept
}

// runName names a run of an instruction; no other of the same engine has the same name at the same time.
func runName(b begin, i int) string {
	return short(b.Checksum) + "-" + strconv.Itoa(b.Attempt) + "-" + strconv.Itoa(i)
}
