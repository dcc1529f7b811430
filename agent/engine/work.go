package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/plans"
)

// errCanceled is the cause with which the hub's cancellation ends an attempt.
var errCanceled = errors.New("the plan was canceled")

// errPaused is why an attempt stops between two instructions.
var errPaused = errors.New("the plan is paused")

// work is one attempt, or the rest of one, that is going on beside the loop that watches for news.
type work struct {
	engine   *Engine
	decision decision
	snapshot Snapshot
	plan     plans.Plan
	invalid  error // why the plan cannot be carried out at all
	stamp    string
	asked    bool
	cancel   context.CancelCauseFunc
	done     chan struct{}
	hold     atomic.Bool
	// adopted tells that an earlier process of the agent has begun the attempt.
	adopted  bool
	progress *progress
	// again tells that the attempt before was at the same plan and has failed.
	again bool
	// carry is what the journal is told together with what comes next.
	carry []entry
	// unannounced is why the interlock does not say that a plan is applied.
	unannounced error
	// ready is set while the folder of the first instruction is.
	ready bool

	// The rest may be read when done is closed. runner is the engine's, unless it was stopped.
	runner *runner
	// begun tells that the attempt was begun or went on; live is what the source said about it, err why it could not be asked, and
	// wait how long the attempt must wait for another reason.
	begun   bool
	live    *Snapshot
	err     error
	wait    time.Duration
	entered bool
}

// start begins an attempt beside the loop.
func (e *Engine) start(ctx context.Context, d decision) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	w := &work{engine: e, decision: d, snapshot: e.current, cancel: cancel, done: make(chan struct{}), runner: e.runner,
		asked: e.asked == e.current.target(), adopted: e.adopted && d.resume}
	w.progress = newProgress(e, d.begin)
	e.work, e.runner, e.newer = w, nil, false
	go func() {
		defer close(w.done)
		defer cancel(nil)
		w.perform(ctx)
	}()
}

// ended is closed when the work has ended; without work it never is.
func (w *work) ended() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.done
}

// interrupt lets the work know what the hub says about it now.
func (w *work) interrupt(i plans.Interrupt) {
	w.hold.Store(i.Paused || i.Invalid != nil)
	if i.Canceled {
		w.cancel(errCanceled)
	}
}

// perform makes sure that the attempt is still the one to make, and makes it.
func (w *work) perform(ctx context.Context) {
	e := w.engine
	e.board.wait("waiting for another plan to be applied")
	if w.err = e.Gate.enter(ctx); w.err != nil && !w.toEnd(ctx) {
		return
	}
	w.entered = w.err == nil
	e.board.step("making sure that nothing stands in the way", 0)
	if w.wait, w.unannounced, w.err = e.enterInterlock(); (w.err != nil || w.wait > 0) && !w.toEnd(ctx) {
		return
	}
	raw := w.snapshot.Delivery.Plan
	if r := e.journal.now(); w.decision.resume && len(r.Plan) > 0 {
		raw = r.Plan
	}
	if w.plan, w.invalid = plans.Decode(raw); w.invalid == nil {
		w.invalid = w.plan.Validate()
	}
	fail, agreed := w.begin(ctx)
	if !agreed {
		return
	}
	w.begun = true
	w.runner.stop()
	w.runner = nil
	d := w.decision
	e.Log.Info("Applying plan", "checksum", short(d.begin.Checksum), "attempt", d.begin.Attempt, "resume", d.resume, "reason", d.reason)
	e.Host.Notify("STATUS=Applying plan " + short(d.begin.Checksum))
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		if r := e.journal.now(); !w.again {
			e.keepHistory(r.Plan, r.Checksum)
		}
	}()
	going := w.progress.start()
	if fail == nil {
		fail = w.attempt(ctx)
	}
	going()
	<-kept
	w.end(ctx, fail)
}

// toEnd tells that the attempt only goes on so that what runs for it is ended.
func (w *work) toEnd(ctx context.Context) bool {
	return w.decision.resume && !w.decision.commit && errors.Is(context.Cause(ctx), errCanceled)
}

// close does what is left to do when the outcome has been handed over.
func (w *work) close() {
	e := w.engine
	defer func() {
		if w.entered {
			e.Gate.leave()
		}
	}()
	if !w.begun {
		if w.entered {
			e.releaseInterlock()
		}
		return
	}
	r := e.journal.now()
	if !r.unfinished() {
		e.dropWork(r)
		e.dropKept(r)
		e.keepAttempt(r)
	}
	e.dropRuns(r)
	e.releaseInterlock()
}
