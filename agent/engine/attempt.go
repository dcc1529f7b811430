package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// errCanceled is the cause with which the hub's cancellation ends an attempt.
var errCanceled = errors.New("the plan was canceled")

// errPaused is why an attempt stops between two instructions.
var errPaused = errors.New("the plan is paused")

// attempt is one attempt at a plan, or the rest of one after a restart. It goes through these steps in a goroutine of its own, beside the
// loop that watches for changes; journal.Record has what each leaves on disk.
//
//	step                                 ends without having begun when
//	waits for the gate                   ctx ends
//	announces itself by the interlock    a restart of the agent is announced
//	agrees on the attempt, see begin     the source cannot be reached, or holds something else by now
//	files, then instructions             (has begun)
//	a failure rolls files back           (has begun)
//	end, see journalEnd                  (has begun)
//
// When it has ended, the loop takes over the result, hands it to the reporter, and calls close.
type attempt struct {
	engine   *Engine
	decision decision
	snapshot source.Snapshot
	plan     plans.Plan
	invalid  error // why the plan cannot be applied at all
	// workName is the name of the attempt's folder in the work directory.
	workName string
	// retryRequested is decider.retryRequested.
	retryRequested bool
	cancel         context.CancelCauseFunc
	done           chan struct{}
	// paused is set while the hub pauses the plan. pauseJournal is held while that is written into the journal.
	paused       atomic.Bool
	pauseJournal sync.Mutex
	// mayRun says that a program may still run that an earlier process has started for the attempt.
	mayRun bool
	// restoring says that an earlier process has begun to restore files for the attempt. All are restored, also of a canceled plan.
	restoring bool
	progress  *report.Progress
	// repeated says that the attempt before was at the same plan and has failed.
	repeated bool
	// unwritten are entries that the journal gets together with the next one.
	unwritten []journal.Entry
	// interlockErr is why the interlock does not say that a plan is applied.
	interlockErr error
	// prepared is set when the folder of the first instruction is ready.
	prepared bool

	// The rest may be read when done is closed.

	// runner is the engine's, unless the attempt has stopped it.
	runner *runner
	// begun says that the attempt began or went on.
	begun bool
	// live is what the source said about it; nil when it was not asked, or err why it could not be.
	live *source.Snapshot
	err  error
	// wait is how long to wait before the next attempt because of the interlock.
	wait time.Duration
	// failedWith is why an attempt that has begun has failed; nil if it was canceled or will go on.
	failedWith error
	// hasGate is set while the attempt has the gate.
	hasGate bool
}

// start begins an attempt beside the loop, after what the one before has left to be done.
func (e *Engine) start(ctx context.Context, d decision) {
	e.runCleanup()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := e.journal.Record()
	a := &attempt{engine: e, decision: d, snapshot: e.current, cancel: cancel, done: make(chan struct{}), runner: e.runner,
		retryRequested: e.retryPlan == e.current.PlanID(), mayRun: d.resume && e.mayStillRun(r), restoring: d.resume && r.RollingBack}
	a.paused.Store(pauses(e.current.Interrupt)) // the attempt writes that into the journal
	a.interrupt(e.current.Interrupt)
	a.progress = e.reporter.NewProgress(d.attempt, e.status.setProgress)
	e.attempt, e.runner, e.changed = a, nil, false
	go func() {
		defer close(a.done)
		defer cancel(nil)
		a.run(ctx)
	}()
}

// ended is closed when the attempt has ended; a nil attempt never ends.
func (a *attempt) ended() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.done
}

// interrupt passes on what the hub says about the attempt now.
func (a *attempt) interrupt(i plans.Interrupt) {
	if paused := pauses(i); a.paused.Swap(paused) != paused {
		a.journalPause()
	}
	if i.Canceled && !a.restoring {
		a.cancel(errCanceled)
	}
}

// pauses reports whether nothing more of a plan may be started.
func pauses(i plans.Interrupt) bool {
	return i.Paused || i.Invalid != nil
}

// journalPause writes into the journal whether the hub pauses the attempt, if an instruction has been started and has not ended: after a
// restart without the hub, no other one must be started. At any other time the attempt writes it when it stops.
func (a *attempt) journalPause() {
	a.pauseJournal.Lock()
	defer a.pauseJournal.Unlock()
	e := a.engine
	r := e.journal.Record()
	if r.AttemptID != a.decision.attempt || !r.Unfinished() || r.RollingBack || r.InstructionsStarted == r.InstructionsDone {
		return
	}
	switch paused := a.paused.Load(); {
	case paused && !r.Paused:
		e.append(journal.Entry{Kind: journal.KindPause})
	case !paused && r.Paused:
		e.append(journal.Entry{Kind: journal.KindUnpause})
	}
}

// run makes sure that the attempt is still the one to make, and makes it.
func (a *attempt) run(ctx context.Context) {
	e := a.engine
	e.status.beginStep(PhaseWaiting, "waiting for another plan to be applied", 0)
	if a.err = e.Gate.Acquire(ctx, 1); a.err != nil && !a.onlyStopsPrograms(ctx) {
		return
	}
	if a.hasGate = a.err == nil; a.hasGate {
		e.status.beginStep(PhaseApplying, "checking for an announced restart", 0)
		if a.wait, a.interlockErr, a.err = e.enterInterlock(); (a.err != nil || a.wait > 0) && !a.onlyStopsPrograms(ctx) {
			return
		}
	}
	raw := a.snapshot.Delivery.Plan
	if r := e.journal.Record(); a.decision.resume && len(r.Plan) > 0 {
		raw = r.Plan
	}
	if a.plan, a.invalid = plans.Decode(raw); a.invalid == nil {
		a.invalid = a.plan.Validate()
	}
	fail, agreed := a.begin(ctx)
	if !agreed {
		return
	}
	a.begun = true
	a.runner.stop()
	a.runner = nil
	d := a.decision
	checksum := plans.ShortChecksum(d.attempt.Checksum)
	e.Log.Info("Applying plan", "checksum", checksum, "attempt", d.attempt.Attempt, "resume", d.resume, "reason", d.reason)
	e.Notify()
	if !a.repeated {
		e.keepAppliedPlan(raw, d.attempt.Checksum)
	}
	stopProgress := a.progress.Start()
	if fail == nil {
		fail = a.apply(ctx)
	}
	stopProgress()
	a.end(ctx, fail)
}

// onlyStopsPrograms says that an attempt at a plan that was canceled or removed goes on only so that what an earlier process has started
// for it is stopped.
func (a *attempt) onlyStopsPrograms(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return a.decision.resume && !a.decision.commit && (errors.Is(cause, errCanceled) || errors.Is(cause, source.ErrRemoved))
}

// failure is why an attempt failed.
type failure struct {
	err error
	// final says that no other attempt can succeed.
	final bool
}

// failed makes a failure of an error; nil of nil.
func failed(err error) *failure {
	if err == nil {
		return nil
	}
	return &failure{err: err}
}

// apply applies the plan from the first step that is not done.
func (a *attempt) apply(ctx context.Context) *failure {
	e := a.engine
	r := e.journal.Record()
	if a.invalid != nil {
		if a.mayRun {
			e.warn("Stopping the program of a plan that cannot be applied failed", e.stopProgram(r))
		}
		return &failure{err: a.invalid, final: true}
	}
	if r.RollingBack {
		return &failure{err: &outputError{message: r.Message, summary: r.Summary}, final: r.Final}
	}
	e.removeRemains() // what the journal lacked was written with the beginning of this attempt
	e.remove(e.journal.TakePreviousBackups())
	err := e.cleanWorkDirectory(a.workName)
	if err != nil && !a.mayRun {
		return failed(fmt.Errorf("cleaning the work directory: %w", err))
	}
	e.warn("Cleaning the work directory failed", err) // left alone, a program would run beside one of the next attempt
	if err := a.applyFiles(ctx, r); err != nil {
		return failed(err)
	}
	for i := r.InstructionsDone; i < len(a.plan.Instructions); i++ {
		// A program that may still run is stopped when the plan is canceled, and waited for when it is paused.
		mayRun := a.mayRun && i == r.InstructionsStarted-1
		interruption := a.interruption(ctx)
		paused := errors.Is(interruption, errPaused)
		if interruption != nil && !(mayRun && (paused || a.onlyStopsPrograms(ctx))) {
			return failed(interruption)
		}
		if err := a.runInstruction(ctx, i, paused); err != nil {
			return failed(err)
		}
	}
	return nil
}

// interruption is why an attempt does not go on to the next step now; nil when it does.
func (a *attempt) interruption(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case a.paused.Load():
		return errPaused
	}
	return nil
}

// note keeps entries for the next write, which must come before the next step begins.
func (a *attempt) note(entries ...journal.Entry) {
	a.unwritten = append(a.unwritten, entries...)
}

// flushBefore writes the entries that were noted if an instruction comes next that must not start before they are written: one that is
// pulled first, which may take long. Any other instruction writes them together with its own start, and the end with its own entry.
func (a *attempt) flushBefore(next int) error {
	if next < len(a.plan.Instructions) && a.plan.Instructions[next].Image != "" {
		return a.flush()
	}
	return nil
}

// flush writes the entries that were noted, and more.
func (a *attempt) flush(more ...journal.Entry) error {
	a.note(more...)
	entries := a.unwritten
	a.unwritten = nil
	if len(entries) == 0 {
		return nil
	}
	return a.engine.journal.Append(entries...)
}

// end journals how the attempt ended. One that was only interrupted goes on later.
func (a *attempt) end(ctx context.Context, fail *failure) {
	e, checksum := a.engine, plans.ShortChecksum(a.decision.attempt.Checksum)
	stopped := fail != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errCanceled)
	if stopped || fail != nil && errors.Is(fail.err, errPaused) {
		if !stopped {
			a.note(journal.Entry{Kind: journal.KindPause})
		}
		if err := a.flush(); err != nil {
			e.Log.Error("Writing the journal failed", "error", err)
		}
		e.Log.Info("Plan interrupted, it will be resumed", "checksum", checksum, "paused", !stopped)
		return
	}
	end := journal.Result{Succeeded: fail == nil}
	switch {
	case fail == nil:
	case ctx.Err() != nil:
		end = canceled(errors.Is(fail.err, run.ErrStillRunning))
	default:
		a.failedWith = fail.err
		end.Final, end.Message, end.Summary = fail.final, fail.err.Error(), withoutOutput(fail.err)
		if a.mustRollBack(fail) {
			end.RolledBack, end.Message, end.Summary = a.rollBack(end)
		}
		e.Log.Warn("Attempt failed", "checksum", checksum, "attempt", a.decision.attempt.Attempt, "error", end.Summary)
	}
	if err := a.flush(journal.Entry{Kind: journal.KindEnd, Result: end}); err != nil {
		// This process knows the outcome; after a crash the run directory of the last instruction has its result.
		e.Log.Error("Writing the journal failed", "error", err)
	}
	r := e.journal.Record()
	e.status.update(func(s *State) {
		if r.Succeeded {
			s.Counters.AttemptsSucceeded++
		} else {
			s.Counters.AttemptsFailed++
		}
		s.Counters.AttemptSecondsTotal += r.Ended.Sub(r.Started).Seconds()
	})
	e.Notify()
	e.Log.Info("Plan ended", "checksum", checksum, "attempt", r.Attempt, "succeeded", r.Succeeded, "canceled", r.Canceled,
		"rolledBack", r.RolledBack, "duration", r.Ended.Sub(r.Started).Round(time.Millisecond))
}

// canceled is the result of an attempt that the hub canceled.
func canceled(incomplete bool) journal.Result {
	return journal.Result{Canceled: true, Incomplete: incomplete, Message: errCanceled.Error(), Summary: errCanceled.Error()}
}

// close does what is left to do when the outcome has been handed over.
func (a *attempt) close() {
	e := a.engine
	defer func() {
		if a.hasGate { // otherwise the interlock is that of another engine
			e.releaseInterlock()
			e.Gate.Release(1)
		}
	}()
	if !a.begun {
		return
	}
	r := e.journal.Record()
	if !r.Unfinished() {
		e.makeSpace(a.failedWith)
		if err := e.journal.Flush(); err != nil {
			// A restart would go on with the attempt, by what is in the work folder.
			e.Log.Error("Writing the journal failed, the work folder and the backups are kept", "error", err)
			if r.Succeeded || r.RolledBack { // of others they stay anyway
				e.remains = &r
			}
		} else {
			e.removeWorkFolder(r)
			e.removeBackups(r)
		}
		e.addToHistory(r)
	}
	e.removeOldRuns(r)
}
