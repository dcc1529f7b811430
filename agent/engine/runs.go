package engine

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// What is kept of the whole output of instructions.
const (
	keepRuns     = 20
	keepRunBytes = 256 << 20
)

// spool is the folder that keeps the output of one run of an instruction.
func (e *Engine) spool(b begin, i int) string {
	return filepath.Join(e.StateDirectory, "runs", runName(b, i))
}

// unit names the unit in which a run survives the agent. A file may hold the same plan as the hub or another file, so its name is in it.
func (e *Engine) unit(b begin, i int) string {
	if e.Name == "hub" {
		return "system-agent-" + runName(b, i)
	}
	return "system-agent-" + plans.Checksum([]byte(e.Name))[:6] + "-" + runName(b, i)
}

// hasRun tells whether the first instruction of an attempt was begun, of which the journal alone cannot be sure.
func (e *Engine) hasRun(r record) bool {
	return r.Begun > 0 && e.isDir(e.spool(r.begin, r.Begun-1))
}

// spent are the spools, the oldest first.
type spent []string

// used notes that a spool is the newest one.
func (s spent) used(name string) spent {
	return append(slices.DeleteFunc(s, func(old string) bool { return old == name }), name)
}

// dropRuns removes the oldest spools, and none of an attempt that is not over.
func (e *Engine) dropRuns(r record) {
	inUse := map[string]bool{}
	for _, run := range r.Runs {
		name := filepath.Base(run.Spool)
		e.spent = e.spent.used(name)
		inUse[name] = r.unfinished()
	}
	folder := filepath.Join(e.StateDirectory, "runs")
	names, err := e.Host.ReadDir(folder)
	if err != nil {
		e.Log.Warn("Old runs cannot be removed", "error", err)
		return
	}
	order := func(name string) int { return slices.Index(e.spent, name) } // unknown ones are the oldest
	slices.SortStableFunc(names, func(a, b string) int { return order(b) - order(a) })
	var kept int
	var bytes int64
	for _, name := range names {
		bytes += e.sizeOf(filepath.Join(folder, name))
		kept++
		if kept == 1 || inUse[name] || kept <= keepRuns && bytes <= keepRunBytes {
			continue
		}
		if err := e.Host.RemoveAll(filepath.Join(folder, name)); err != nil {
			e.Log.Warn("An old run cannot be removed", "error", err)
		}
	}
	e.spent = slices.DeleteFunc(e.spent, func(name string) bool { return !slices.Contains(names, name) })
}

// sizeOf is what the files of a spool take.
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
