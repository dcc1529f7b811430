package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/plans"
)

// pause confirms to the hub that the plan is paused, and how far it came. The checksum protocol has nothing to confirm it by.
func (e *Engine) pause() {
	s := e.current
	if s.Status.State == "" || s.Status.State == plans.StatePaused {
		return
	}
	checkpoint := e.checkpoint()
	checkpoint.Paused, checkpoint.ResumeState = true, s.Status.State
	e.reporter.Interruption(s.PlanID(), report.Interruption{State: plans.StatePaused, Revision: s.Status.Revision, Checkpoint: checkpoint})
	e.Notify()
}

// cancel ends an attempt that is not over, or confirms to the hub that it has ended. It returns whether to decide again first.
func (e *Engine) cancel(ctx context.Context) (again bool) {
	s, r := e.current, e.journal.Record()
	if r.Is(s.PlanID()) && r.Unfinished() {
		if e.mustGoOn(r) {
			e.stopPrograms(ctx, r, "the plan is canceled")
			return false
		}
		e.append(journal.Entry{Kind: journal.KindEnd, Result: canceled(false)})
		e.addToHistory(e.journal.Record())
		return true
	}
	if s.Status.State != "" {
		i := report.Interruption{State: plans.StateCanceled, Revision: s.Status.Revision, Checkpoint: e.checkpoint()}
		i.Checkpoint.TerminationIncomplete = r.Is(s.PlanID()) && r.Canceled && r.Incomplete
		e.reporter.Interruption(s.PlanID(), i)
	}
	return false
}

// canceledWithAnother reports whether the hub has canceled the attempt that the end of an earlier process has interrupted together with
// another plan, which it has delivered meanwhile. Without the restart the cancellation would have reached that attempt.
func (e *Engine) canceledWithAnother(r journal.Record) bool {
	return e.inherited && r.Unfinished() && e.current.Interrupt.Canceled && !r.Is(e.current.PlanID())
}

// mustGoOn reports whether an attempt of an earlier process has to go on before it is over or another one begins: a program may still run,
// or only some files are restored.
func (e *Engine) mustGoOn(r journal.Record) bool {
	return e.mayStillRun(r) || e.inherited && r.Unfinished() && r.RollingBack
}

// mayStillRun reports whether a program that an earlier process has started for an attempt may still run, in a unit of its own.
func (e *Engine) mayStillRun(r journal.Record) bool {
	return e.inherited && r.Unfinished() && r.InstructionsStarted > r.InstructionsDone
}

// stopPrograms lets an attempt of an earlier process go on only to stop what that has started for it, or to restore the other files.
func (e *Engine) stopPrograms(ctx context.Context, r journal.Record, reason string) {
	e.start(ctx, decision{action: actionApply, attempt: r.AttemptID, resume: true, reason: reason})
	if !e.attempt.restoring {
		e.attempt.cancel(errCanceled)
	}
}

// stopInherited stops what an earlier process has started for another attempt than the one that is to begin: both would run beside each
// other. It returns whether there may be anything to stop; then the new attempt begins when that has ended.
func (e *Engine) stopInherited(ctx context.Context, d decision) bool {
	r := e.journal.Record()
	if d.resume || !e.mustGoOn(r) || len(r.Plan) == 0 {
		return false
	}
	e.stopPrograms(ctx, r, "another attempt replaces the one that was interrupted")
	return true
}

// checkpoint is how far the current delivery has come.
func (e *Engine) checkpoint() plans.Checkpoint {
	s, r := e.current, e.journal.Record()
	c := plans.Checkpoint{Checksum: s.Delivery.Checksum()}
	if plan, err := plans.Decode(s.Delivery.Plan); err == nil {
		c.TotalInstructions = len(plan.Instructions)
	}
	if r.Is(s.PlanID()) && r.Revision == s.Status.Revision && !r.Succeeded {
		c.CompletedInstructions = r.InstructionsDone
	}
	return c
}

// run makes sure that probes and periodic instructions of the current plan run. applied is that of startRunner.
func (e *Engine) run(applied bool) {
	defer e.updateRunner()
	id := e.current.PlanID()
	if len(e.current.Delivery.Plan) == 0 {
		return
	}
	if e.runner.is(id) && (!e.runner.periodicsEnded || e.periodicsCanceled()) {
		e.runner.observe(e.current.Status.ProbeStatuses)
		return
	}
	e.runner.stop()
	e.runner = nil
	plan, err := plans.Decode(e.current.Delivery.Plan)
	if err != nil || plan.Validate() != nil {
		return // an attempt has reported or will report it
	}
	e.status.update(func(s *State) { s.Probes, s.Periodic = nil, nil })
	e.runner = e.startRunner(id, plan, applied)
}

// updateRunner lets periodic instructions run, wait, or end, as the hub says. Probes go on: they change nothing.
func (e *Engine) updateRunner() {
	if e.runner == nil {
		return
	}
	if e.periodicsCanceled() {
		e.runner.endPeriodics()
	}
	e.runner.setPaused(pauses(e.current.Interrupt))
}

// periodicsCanceled reports whether the plan is canceled, so that nothing of it may be executed.
func (e *Engine) periodicsCanceled() bool {
	s := e.current
	switch s.Status.State {
	case plans.StateCanceled, plans.StateCancelled:
		return true
	case "":
		if r := e.journal.Record(); r.Is(s.PlanID()) && r.Canceled {
			return true
		}
	}
	return s.Interrupt.Canceled && s.Interrupt.Invalid == nil
}

// errNothingToRetry is wrapped by Retry's error when the plan has not failed.
var errNothingToRetry = errors.New("nothing to retry")

// errNotRunning is returned by Retry when Run has returned.
var errNotRunning = errors.New("the agent is not applying plans")

// Retry tries a failed plan again now. Where the failure was reported as final, plan-state goes from failed to in-progress with a
// revision of its own, as if the hub had delivered it again. The error wraps errNothingToRetry, or is errNotRunning.
func (e *Engine) Retry() error {
	answer := make(chan error, 1)
	select {
	case e.requests <- answer:
		return <-answer
	case <-e.finished:
		return errNotRunning
	}
}

// requestRetry decides whether the current plan may be retried, and requests it.
func (e *Engine) requestRetry() error {
	s, r := e.current, e.journal.Record()
	known := r.Is(s.PlanID())
	switch {
	case !e.seen || len(s.Delivery.Plan) == 0:
		return fmt.Errorf("%w: no plan has been delivered yet", errNothingToRetry)
	case e.attempt != nil:
		return fmt.Errorf("%w: a plan is being applied", errNothingToRetry)
	case s.Interrupt != (plans.Interrupt{}):
		return fmt.Errorf("%w: the hub has paused or canceled the plan", errNothingToRetry)
	case s.Status.State == plans.StateFailed:
	case s.Status.State == plans.StateInProgress && known && !r.Unfinished() && !r.Succeeded && !lastTry(r, s.Delivery.MaxFailures):
	case s.Status.State == "" && known && !r.Unfinished() && !r.Succeeded:
	case s.Status.State == "" && !known && s.Status.FailedChecksum == s.Delivery.Checksum() && s.Status.FailureCount > 0:
	default:
		return fmt.Errorf("%w: the plan has not failed", errNothingToRetry)
	}
	e.retryPlan = s.PlanID()
	e.notBefore = time.Time{}
	return nil
}
