package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// begin agrees with the source on the attempt and then writes it into the journal. Nothing is executed unless both have been done. It
// returns why the attempt has failed already, and whether it may be made at all.
//
// Where the source must be written to anyway, to set a plan in progress, that write also reports whether the plan is still the one to
// apply: it fails when anybody has changed the source since it was read. A crash between the two steps leaves a plan in progress that the
// journal does not know, which begins as this attempt would have.
func (a *attempt) begin(ctx context.Context) (fail *failure, agreed bool) {
	e, d := a.engine, a.decision
	e.status.beginStep(PhaseApplying, "confirming the plan with the source", 0)
	switch {
	case d.commit:
		agreed = a.agree(e.commit(ctx, a.snapshot, d))
	case d.resume:
		agreed = true
	default:
		agreed = a.agree(e.Source.Get(ctx))
	}
	if !agreed {
		return nil, false
	}
	fail = a.journalBegin()
	if fail == nil && a.interlockErr != nil {
		fail = failed(fmt.Errorf("writing the interlock %s: %w", interlockActive, a.interlockErr))
	}
	if fail != nil && a.mayRun {
		// The program goes on, or is stopped, all the same: left alone it would run beside one of the next attempt.
		e.Log.Error("Going on with the plan without having announced it", "error", fail.err)
		return nil, true
	}
	return fail, true
}

// agree compares the attempt with what the source says now.
func (a *attempt) agree(live source.Snapshot, err error) bool {
	if err != nil {
		a.err = err
		return false
	}
	e, d := a.engine, a.decision
	e.status.sourceAnswered()
	a.live = &live
	if d.commit {
		return live.PlanID() == d.attempt.PlanID() && live.Status.State == plans.StateInProgress && live.Status.Revision == d.attempt.Revision &&
			live.Interrupt == (plans.Interrupt{})
	}
	r, attempts := e.journal.State()
	after := e.decideFrom(live, r, attempts, a.retryRequested)
	return after.action == actionApply && !after.commit && after.attempt.Delivery() == d.attempt.Delivery()
}

// commit sets the plan in progress at the source, before anything is done for it, and returns what the source holds then.
func (e *Engine) commit(ctx context.Context, s source.Snapshot, d decision) (source.Snapshot, error) {
	from := d.beginFrom()
	committed, err := e.Source.Update(ctx, s.UID, d.attempt.Checksum, func(s *plans.Status) {
		if s.State != from {
			return
		}
		report.Begin(s, d.attempt)
	})
	if errors.Is(err, source.ErrSuperseded) {
		return e.Source.Get(ctx)
	}
	return committed, err
}

// journalResume writes into the journal that the attempt goes on after a restart, or that the pause has ended.
func (a *attempt) journalResume(last journal.Record) error {
	e := a.engine
	switch {
	case e.inherited:
		e.inherited = false
		return e.journal.Append(journal.Entry{Kind: journal.KindResume})
	case last.Paused && !a.paused.Load():
		return e.journal.Append(journal.Entry{Kind: journal.KindUnpause})
	}
	return nil
}

// journalBegin writes into the journal that the attempt begins, or goes on. Where the first instruction can run at once, its folder is
// made before, so that one write records both.
func (a *attempt) journalBegin() *failure {
	e, d := a.engine, a.decision
	last := e.journal.Record()
	if d.resume {
		a.workName = e.workName(last.Started)
		return failed(a.journalResume(last))
	}
	started := time.Now()
	a.workName = e.workName(started)
	a.repeated = last.Is(d.attempt.PlanID()) && !last.Succeeded
	entries := []journal.Entry{{Kind: journal.KindBegin, Time: started, Begin: &d.attempt, DeliveredPlan: journal.DeliveredPlan{
		Plan: a.snapshot.Delivery.Plan, MaxFailures: a.snapshot.Delivery.MaxFailures, ProbePeriod: a.snapshot.Delivery.ProbePeriod}}}
	var fail *failure
	if a.invalid == nil && len(a.plan.Files) == 0 && len(a.plan.Instructions) > 0 && a.plan.Instructions[0].Image == "" {
		if fail = failed(a.prepare(0)); fail == nil {
			a.prepared = true
			entries = append(entries, a.startEntry(0))
		}
	}
	if err := e.journal.Append(entries...); err != nil {
		return failed(err)
	}
	return fail
}
