package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/plans"
)

// timestampLayout is of folders and files that are named for a time, in UTC.
const timestampLayout = "20060102-150405"

// workName names the folder of an attempt in the work directory, so that a resumed attempt finds it again. Engines of one machine do not
// share any.
func (e *Engine) workName(started time.Time) string {
	return started.UTC().Format(timestampLayout) + e.workSuffix()
}

// workSuffix keeps the folders of local plans apart from those of the hub's.
func (e *Engine) workSuffix() string {
	if e.Name == HubName {
		return ""
	}
	return "." + strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, e.Name)
}

// cleanWorkDirectory removes the folders of earlier attempts of this engine but keep, and nothing that no attempt made.
func (e *Engine) cleanWorkDirectory(keep string) error {
	if e.PreserveWorkDirectory {
		return nil
	}
	names, err := e.Host.ReadDir(e.WorkDirectory)
	if err != nil {
		return err
	}
	for _, name := range names {
		stamp, ours := strings.CutSuffix(name, e.workSuffix())
		if _, err := time.Parse(timestampLayout, stamp); !ours || err != nil || name == keep {
			continue
		}
		if err := e.Host.RemoveAll(filepath.Join(e.WorkDirectory, name)); err != nil {
			return err
		}
	}
	return nil
}

// makeSpace removes the folders that are kept for people if err says that the disk is full: an attempt that cannot be journaled, and a plan
// whose acceptance cannot be stored, never come to where they are removed otherwise.
func (e *Engine) makeSpace(err error) {
	if errors.Is(err, syscall.ENOSPC) && !e.journal.Record().Unfinished() {
		e.warn("Cleaning the work directory failed", e.cleanWorkDirectory(""))
	}
}

// removeWorkFolder removes the folder of an attempt that has succeeded. After a failure it stays for people, until the next attempt.
func (e *Engine) removeWorkFolder(r journal.Record) {
	if e.PreserveWorkDirectory || !r.Succeeded {
		return
	}
	e.warn("Removing the work folder failed", e.Host.RemoveAll(filepath.Join(e.WorkDirectory, e.workName(r.Started))))
}

// periodicDirectory has the folders of periodic instructions.
func (e *Engine) periodicDirectory() string {
	return filepath.Join(e.WorkDirectory, "periodic"+e.workSuffix())
}

// removePeriodicWork removes the folders that an earlier process could not remove, since it was killed: the plan may be another one by now,
// and their names have its checksum.
func (e *Engine) removePeriodicWork() {
	if e.PreserveWorkDirectory {
		return
	}
	names, err := e.Host.ReadDir(e.periodicDirectory())
	e.warn("Reading the work folders of periodic instructions failed", err)
	for _, name := range names {
		e.warn("Removing the work folder failed", e.Host.RemoveAll(filepath.Join(e.periodicDirectory(), name)))
	}
}

const (
	// runsDirectory is the folder of run directories in the state directory.
	runsDirectory = "runs"
	// maxRuns and maxRunBytes are how many run directories are kept, and how much of their output.
	maxRuns     = 20
	maxRunBytes = 256 << 20
)

// runDirectory keeps the output of one run of an instruction.
func (e *Engine) runDirectory(a journal.AttemptID, i int) string {
	return filepath.Join(e.StateDirectory, runsDirectory, a.RunName(i))
}

// unit names the unit in which a run survives the agent. A file may hold the same plan as the hub or another file, so its name is in it.
func (e *Engine) unit(a journal.AttemptID, i int) string {
	if e.Name == HubName {
		return "system-agent-" + a.RunName(i)
	}
	return "system-agent-" + plans.Checksum([]byte(e.Name))[:6] + "-" + a.RunName(i)
}

// removeOldRuns removes the oldest run directories past maxRuns and maxRunBytes, and none of an attempt that is not over.
func (e *Engine) removeOldRuns(r journal.Record) {
	folder := filepath.Join(e.StateDirectory, runsDirectory)
	names, err := e.Host.ReadDir(folder)
	attempts, historyErr := e.History()
	if err := errors.Join(err, historyErr); err != nil {
		e.warn("Removing old runs failed", err)
		return
	}
	age := map[string]int{} // from 1, the oldest; 0 for runs that the history does not know
	for _, a := range append(attempts, journal.NewAttempt(e.Name, r)) {
		for _, run := range a.Instructions {
			age[filepath.Base(run.RunDir)] = len(age) + 1
		}
	}
	inUse := func(name string) bool {
		return r.Unfinished() && slices.ContainsFunc(r.Runs, func(run journal.InstructionRun) bool { return filepath.Base(run.RunDir) == name })
	}
	slices.SortStableFunc(names, func(a, b string) int { return age[b] - age[a] })
	var bytes int64
	for i, name := range names {
		bytes += e.sizeOf(filepath.Join(folder, name))
		if i == 0 || inUse(name) || i < maxRuns && bytes <= maxRunBytes {
			continue
		}
		e.warn("Removing an old run failed", e.Host.RemoveAll(filepath.Join(folder, name)))
	}
}

// sizeOf is the size of the files in a run directory.
func (e *Engine) sizeOf(folder string) int64 {
	names, _ := e.Host.ReadDir(folder)
	var size int64
	for _, name := range names {
		if info, err := e.Host.Lstat(filepath.Join(folder, name)); err == nil && !strings.HasPrefix(name, ".") {
			size += info.Size
		}
	}
	return size
}
