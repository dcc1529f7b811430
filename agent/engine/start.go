package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// open takes the state directory and reads what an earlier run left.
func (e *Engine) open() (unlock func(), err error) {
	if err := e.Host.MakeDir(e.StateDirectory, host.Private(0o700)); err != nil {
		return nil, err
	}
	unlock, err = e.Host.Lock(filepath.Join(e.StateDirectory, "lock"))
	if err != nil {
		return nil, fmt.Errorf("taking the state directory: %w", err)
	}
	path := filepath.Join(e.StateDirectory, JournalName)
	raw, err := e.Host.ReadFile(path)
	if err != nil && !isNotExist(err) {
		unlock()
		return nil, err
	}
	if e.journal, err = openJournal(e.Host, path, raw); err != nil {
		e.Log.Error("The journal is damaged, plans will be applied anew", "error", err)
	}
	e.board.open(e.journal)
	e.recover()
	return unlock, nil
}

// recover takes up what an earlier run left: an attempt that goes on, or an outcome that nobody knows yet.
func (e *Engine) recover() {
	if e.Gate.try() {
		e.releaseInterlock()
		e.Gate.leave()
	}
	r := e.journal.now()
	e.openHistory(r)
	sure := !r.Unsure || e.hasRun(r)
	e.adopted = r.unfinished() && sure
	if len(r.Plan) > 0 && sure && !r.Canceled && r.Reported.IsZero() {
		e.current = r.snapshot()
	}
	if !r.unfinished() {
		e.dropKept(r)
	}
	if r.Succeeded { // of what failed the folder stays, for people
		if err := e.cleanWork(""); err != nil {
			e.Log.Warn("The work folder cannot be cleaned", "error", err)
		}
	}
}

// leave stops everything for the end of the process. What runs in a unit of its own goes on, unless its plan is no more.
func (e *Engine) leave(ctx context.Context) {
	if e.work != nil {
		cause := host.ErrLeave
		if errors.Is(context.Cause(ctx), ErrRemoved) {
			cause = ErrRemoved
		}
		e.work.cancel(cause)
		<-e.work.done
		e.runner = e.work.runner
		e.work.close()
	}
	e.runner.stop()
}

// comesFirst tells whether the attempt that the end of an earlier process has interrupted goes on though the hub has another plan by now. It
// would have gone on without that end too; only a pause and a cancellation have left it, or a hub that is another one.
func (e *Engine) comesFirst(r record) bool {
	return e.adopted && r.unfinished() && !r.Paused && len(r.Plan) > 0 && r.UID == e.current.UID && !r.is(e.current.target()) &&
		len(e.current.Delivery.Plan) > 0 && e.current.Interrupt == (plans.Interrupt{})
}
