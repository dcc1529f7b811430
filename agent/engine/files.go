package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

const (
	// fileTimeout is how long one file may take before the engine counts as hung.
	fileTimeout = 10 * time.Minute
	// backupDirectory is the folder of backups in the state directory.
	backupDirectory = "backup"
)

// applyFiles brings all files into their desired state. Files that are in it already cost no write; before any other changes, what is
// there is backed up and the journal written. An entry about one file says that all before it are in place.
func (a *attempt) applyFiles(ctx context.Context, r journal.Record) error {
	if len(a.plan.Files) == 0 || r.FilesDone {
		return nil
	}
	a.progress.Step(plans.PhaseFiles, 0, len(a.plan.Files), "")
	for i := r.FilesPlaced; i < len(a.plan.Files); i++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		file := a.plan.Files[i]
		a.engine.status.beginStep(PhaseApplying, "writing "+file.Path, fileTimeout)
		if err := a.applyFile(i, file); err != nil {
			return fmt.Errorf("files[%d]: %s: %w", i, file.Path, err)
		}
	}
	a.note(journal.Entry{Kind: journal.KindFiles})
	return a.flushBefore(0)
}

// applyFile brings one file or folder into its desired state.
func (a *attempt) applyFile(i int, file plans.File) error {
	h := a.engine.Host
	if !filepath.IsAbs(file.Path) {
		return errors.New("the path is not absolute on this machine")
	}
	desired, err := filestate.NewDesired(file)
	if err != nil {
		return err
	}
	difference, err := filestate.Compare(h, file.Path, desired)
	if err != nil || difference.Same() {
		return err
	}
	backup, err := a.backUp(i, file, difference.Current, desired)
	if err != nil {
		return err
	}
	return filestate.Apply(h, file.Path, desired, backup)
}

// backUp saves what is at a path and journals it, before the path is changed for the first time. A backup of an earlier try, or of this one
// before a crash, stays.
func (a *attempt) backUp(i int, file plans.File, current *fs.Info, desired filestate.Desired) (filestate.Backup, error) {
	e := a.engine
	r := e.journal.Record()
	if backup, known := r.Backups[i]; known {
		if i > 0 && r.FilesPlaced == i {
			return backup, nil
		}
		return backup, e.journal.Append(journal.Entry{Kind: journal.KindFile, Index: i})
	}
	backup, err := filestate.NewBackup(e.Host, file, current, desired, filepath.Join(e.StateDirectory, backupDirectory), r.RunName(i))
	if err != nil {
		return backup, fmt.Errorf("backing up what is there: %w", err)
	}
	return backup, e.journal.Append(journal.Entry{Kind: journal.KindFile, Index: i, Backup: &backup})
}

// mustRollBack reports whether the files are to be restored: the plan asks for it, and this was the last try, or each try is reported as a
// failure, as in the checksum protocol.
func (a *attempt) mustRollBack(fail *failure) bool {
	r := a.engine.journal.Record()
	if !a.plan.Rollback || len(r.Backups) == 0 {
		return false
	}
	r.Final = fail.final
	return r.RollingBack || r.Revision == 0 || lastTry(r, r.MaxFailures)
}

// rollBack restores what the plan has changed, the last file first, and returns what to report. It is journaled before, so that a crash
// does not leave half of it.
func (a *attempt) rollBack(end journal.Result) (done bool, message, summary string) {
	const incomplete = "; not all files could be restored"
	e := a.engine
	r := e.journal.Record()
	if !r.RollingBack {
		if err := a.flush(journal.Entry{Kind: journal.KindRollback, Result: end}); err != nil {
			return false, end.Message + "; the files were not restored: " + err.Error(), end.Summary + "; the files were not restored"
		}
	}
	var failures []error
	order := slices.Sorted(maps.Keys(r.Backups))
	slices.Reverse(order)
	for _, i := range order[min(r.FilesRestored, len(order)):] {
		file := a.plan.Files[i]
		e.status.beginStep(PhaseApplying, "restoring "+file.Path, fileTimeout)
		if err := r.Backups[i].Restore(e.Host, file); err != nil {
			failures = append(failures, fmt.Errorf("files[%d]: %s: %w", i, file.Path, err))
		}
		// The next file may be above this one in the tree; then this one must not be restored again after a crash.
		if err := e.journal.Append(journal.Entry{Kind: journal.KindRestored}); err != nil {
			failures = append(failures, err)
			break
		}
	}
	if err := errors.Join(failures...); err != nil {
		e.Log.Error("Restoring files failed", "error", err)
		return false, end.Message + incomplete + ": " + err.Error(), end.Summary + incomplete
	}
	return true, end.Message + "; the files were restored", end.Summary + "; the files were restored"
}

// removeBackups removes the backups of an attempt that is over and will not be rolled back. After a failure they stay for people, until
// the next plan.
func (e *Engine) removeBackups(r journal.Record) {
	if r.Succeeded || r.RolledBack {
		e.remove(r.Backups)
	}
}

func (e *Engine) remove(backups map[int]filestate.Backup) {
	for _, b := range backups {
		e.warn("Removing a backup failed", b.Remove(e.Host))
	}
}
