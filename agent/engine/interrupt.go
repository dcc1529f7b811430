package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/plans"
)

// pause tells the hub how far the plan came before it was paused. Where only checksums decide there is nothing to tell it by.
func (e *Engine) pause() {
	s := e.current
	if s.Status.State == "" || s.Status.State == plans.StatePaused {
		return
	}
	checkpoint := e.checkpoint()
	checkpoint.Paused, checkpoint.ResumeState = true, s.Status.State
	e.reporter.interrupted(s.target(), interruption{state: plans.StatePaused, revision: s.Status.Revision, checkpoint: checkpoint})
	e.Host.Notify("STATUS=Plan " + short(s.Delivery.Checksum()) + " is paused")
}

// cancel ends an attempt that is not over and tells the hub. It tells whether to decide again first.
func (e *Engine) cancel(ctx context.Context) bool {
	s, r := e.current, e.journal.now()
	if r.is(s.target()) && r.unfinished() && e.adopted && r.Begun > r.Done {
		// What an earlier process of the agent has begun may still run, so it is taken up to be ended.
		e.start(ctx, decision{action: apply, begin: r.begin, resume: true, reason: "the plan is canceled"})
		e.work.cancel(errCanceled)
		return false
	}
	if r.is(s.target()) && r.unfinished() {
		if err := e.journal.add(entry{Kind: kindEnd, Canceled: true, Message: errCanceled.Error(), Summary: errCanceled.Error()}); err != nil {
			e.Log.Error("The journal cannot be written", "error", err)
		}
		e.keepAttempt(e.journal.now())
		return true
	}
	if s.Status.State != "" {
		i := interruption{state: plans.StateCanceled, revision: s.Status.Revision, checkpoint: e.checkpoint()}
		i.checkpoint.TerminationIncomplete = r.is(s.target()) && r.Canceled && r.Incomplete
		e.reporter.interrupted(s.target(), i)
	}
	return false
}

// checkpoint is how far the current delivery has come.
func (e *Engine) checkpoint() plans.Checkpoint {
	s, r := e.current, e.journal.now()
	c := plans.Checkpoint{Checksum: s.Delivery.Checksum()}
	if plan, err := plans.Decode(s.Delivery.Plan); err == nil {
		c.TotalInstructions = len(plan.Instructions)
	}
	if r.is(s.target()) && r.Revision == s.Status.Revision && !r.Succeeded {
		c.CompletedInstructions = r.Done
	}
	return c
}

// run makes sure that probes and periodic instructions of the current plan run. After an apply they start afresh.
func (e *Engine) run(applied bool) {
	defer e.watchRunner()
	t := e.current.target()
	if len(e.current.Delivery.Plan) == 0 || e.runner.is(t) && (!e.runner.ended || e.periodicsEnd()) {
		return
	}
	e.runner.stop()
	e.runner = nil
	plan, err := plans.Decode(e.current.Delivery.Plan)
	if err != nil || plan.Validate() != nil {
		return // its failure has been or will be reported by apply
	}
	e.board.forget()
	e.runner = e.startRunner(t, plan, applied)
}

// watchRunner lets periodic instructions run, wait, or end, as the hub says. Probes go on: they change nothing.
func (e *Engine) watchRunner() {
	if e.runner == nil {
		return
	}
	if e.periodicsEnd() {
		e.runner.endPeriodics()
	}
	e.runner.hold(e.current.Interrupt.Paused || e.current.Interrupt.Invalid != nil)
}

// periodicsEnd tells whether the plan is canceled, so that nothing of it may be executed.
func (e *Engine) periodicsEnd() bool {
	s := e.current
	switch s.Status.State {
	case plans.StateCanceled, plans.StateCancelled:
		return true
	case "":
		r := e.journal.now()
		if r.is(s.target()) && r.Canceled {
			return true
		}
	}
	return s.Interrupt.Canceled && s.Interrupt.Invalid == nil
}

// ErrNothingToRetry is wrapped by Retry's error when the plan has not failed.
var ErrNothingToRetry = errors.New("there is nothing to try again")

// ErrNotRunning is returned when the engine does not run.
var ErrNotRunning = errors.New("the agent does not apply plans at the moment")

// Retry tries a failed plan again now. Where the hub has been told that it failed, the state goes from failed to in-progress with a
// revision of its own, as if the hub had delivered it again.
func (e *Engine) Retry() error {
	answer := make(chan error, 1)
	select {
	case e.requests <- answer:
		return <-answer
	case <-e.finished:
		return ErrNotRunning
	}
}

// ask decides whether the current plan may be tried again.
func (e *Engine) ask() error {
	s, r := e.current, e.journal.now()
	known := r.is(s.target())
	switch {
	case !e.seen || len(s.Delivery.Plan) == 0:
		return fmt.Errorf("%w: no plan has been delivered yet", ErrNothingToRetry)
	case e.work != nil:
		return fmt.Errorf("%w: a plan is being applied", ErrNothingToRetry)
	case s.Interrupt != (plans.Interrupt{}):
		return fmt.Errorf("%w: the hub has interrupted the plan", ErrNothingToRetry)
	case s.Status.State == plans.StateFailed:
	case s.Status.State == plans.StateInProgress && known && !r.unfinished() && !r.Succeeded && !r.lastTry(s.Delivery.MaxFailures):
	case s.Status.State == "" && known && !r.unfinished() && !r.Succeeded:
	case s.Status.State == "" && !known && s.Status.FailedChecksum == s.Delivery.Checksum() && s.Status.FailureCount > 0:
	default:
		return fmt.Errorf("%w: the plan has not failed", ErrNothingToRetry)
	}
	e.asked = s.target()
	e.notBefore = time.Time{}
	return nil
}
