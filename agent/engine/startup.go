package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// open locks the state directory and reads what an earlier process left.
func (e *Engine) open() (unlock func(), err error) {
	if err := e.Host.MkdirAll(e.StateDirectory, fs.WithMode(0o700)); err != nil {
		return nil, err
	}
	unlock, err = e.Host.Lock(filepath.Join(e.StateDirectory, "lock"))
	if err != nil {
		return nil, fmt.Errorf("locking the state directory: %w", err)
	}
	path := filepath.Join(e.StateDirectory, journal.FileName)
	raw, err := e.Host.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		unlock()
		return nil, err
	}
	if e.journal, err = journal.Open(e.Host, path, raw); err != nil {
		e.Log.Error("The journal is damaged, plans will be applied again", "error", err)
	}
	e.status.update(func(*State) { e.status.journal = e.journal })
	e.recover()
	return unlock, nil
}

// recover goes on from what an earlier process left: an unfinished attempt, or an outcome that the source does not know yet. An attempt
// that the hub has paused waits for the hub.
func (e *Engine) recover() {
	if e.Gate.TryAcquire(1) {
		e.releaseInterlock()
		e.Gate.Release(1)
	}
	e.removePeriodicWork()
	r := e.journal.Record()
	if r.Checksum != "" && !r.Unfinished() {
		e.addToHistory(r) // the crash may have come before
	}
	e.inherited = r.Unfinished()
	if len(r.Plan) > 0 && (r.Unfinished() && !r.Paused || r.Unreported()) {
		e.current = r.Snapshot()
	}
	if !r.Unfinished() {
		e.removeBackups(r)
	}
	if r.Succeeded { // the folder of a failed attempt stays, for people
		e.warn("Cleaning the work directory failed", e.cleanWorkDirectory(""))
	}
}

func (e *Engine) historyPath() string {
	return filepath.Join(e.StateDirectory, journal.HistoryFileName)
}

// addToHistory adds an attempt that has ended. The history is for people: that it cannot be written fails no plan.
func (e *Engine) addToHistory(r journal.Record) {
	e.warn("Writing the history of attempts failed", journal.AddToHistory(e.Host, e.historyPath(), journal.NewAttempt(e.Name, r)))
}

// History is the last attempts, at most journal.MaxAttempts, the newest last. It reads the disk.
func (e *Engine) History() ([]journal.Attempt, error) {
	return journal.ReadHistory(e.Host, e.historyPath())
}

// shutDown stops everything at the end of the process. What runs in a unit of its own goes on, unless its plan was removed.
func (e *Engine) shutDown(ctx context.Context) {
	if e.attempt != nil {
		cause := run.ErrDetach
		if errors.Is(context.Cause(ctx), source.ErrRemoved) {
			cause = source.ErrRemoved
		}
		e.attempt.cancel(cause)
		<-e.attempt.done
		e.runner = e.attempt.runner
		e.attempt.close()
	}
	e.runner.stop()
	e.warn("Writing the journal failed", e.journal.Flush())
}

// unfinishedComesFirst reports whether the attempt that the end of an earlier process has interrupted goes on though the hub has another
// plan by now. Without the restart it would have gone on too; only a pause after which nothing runs any more, a cancellation, or a
// recreated plan Secret end that.
func (e *Engine) unfinishedComesFirst(r journal.Record) bool {
	return e.inherited && r.Unfinished() && (!r.Paused || e.mayStillRun(r)) && len(r.Plan) > 0 && r.UID == e.current.UID &&
		!r.Is(e.current.PlanID()) && len(e.current.Delivery.Plan) > 0 && e.current.Interrupt == (plans.Interrupt{})
}
