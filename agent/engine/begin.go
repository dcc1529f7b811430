package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drover-dev/drover/plans"
)

// begin agrees with the source on the attempt and writes it into the journal. Nothing is executed unless both have been done. It tells why
// the attempt has failed already, and whether it may be made at all.
//
// Where the source must be written to anyway, to set a plan in progress, that is what tells whether the plan is still the one to apply:
// the write fails when anyone has changed the source since it was read. It runs side by side with the journal.
func (w *work) begin(ctx context.Context) (*failure, bool) {
	e, d := w.engine, w.decision
	e.board.step("making sure that the plan is still the one to apply", 0)
	switch {
	case d.commit:
		journaled := make(chan *failure, 1)
		go func() { journaled <- w.write(true) }()
		agreed := w.agree(e.commit(ctx, w.snapshot, d))
		fail := <-journaled
		if !agreed && w.err == nil && !d.resume && !w.mine() {
			// Somebody else's word about the same attempt keeps it; any other makes it undone.
			if err := e.journal.add(entry{Kind: kindVoid}); err != nil {
				e.Log.Error("The journal cannot be written", "error", err)
			}
		}
		return fail, agreed
	case d.resume:
		return w.write(false), true
	}
	if !w.agree(e.Source.Get(ctx)) {
		return nil, false
	}
	return w.write(false), true
}

// agree looks at what the source says now.
func (w *work) agree(live Snapshot, err error) bool {
	if err != nil {
		w.err = err
		return false
	}
	e := w.engine
	e.board.sourceAnswered()
	w.live = &live
	if w.decision.commit {
		return w.mine() && live.Interrupt == (plans.Interrupt{})
	}
	r, attempts := e.journal.state()
	after := e.adopt(live, r, decide(live, r, attempts, time.Now(), w.asked))
	return after.action == apply && !after.commit && after.begin.delivery() == w.decision.begin.delivery()
}

// mine tells whether the source holds this attempt as the one in progress.
func (w *work) mine() bool {
	return w.live != nil && w.live.target() == w.decision.begin.target() && w.live.Status.State == plans.StateInProgress &&
		w.live.Status.Revision == w.decision.begin.Revision
}

// commit tells the source that the plan is in progress, before anything is done for it.
func (e *Engine) commit(ctx context.Context, s Snapshot, d decision) (Snapshot, error) {
	from := d.from
	if from == "" {
		from = plans.StatePending
	}
	committed, err := e.Source.Update(ctx, s.UID, d.begin.Checksum, func(s *plans.Status) {
		if s.State != from {
			return
		}
		s.State, s.Revision, s.Checkpoint, s.Progress = plans.StateInProgress, d.begin.Revision, nil, nil
		if s.FailedChecksum != d.begin.Checksum {
			// What a former plan failed with tells nothing about this one.
			s.FailedChecksum, s.FailureCount, s.FailedOutput = "", 0, nil
		}
	})
	if errors.Is(err, ErrSuperseded) {
		return e.Source.Get(ctx)
	}
	return committed, err
}

// write writes into the journal that the attempt begins, or goes on. An attempt whose first instruction needs nothing that takes time is
// made ready before, so that one line more says so.
func (w *work) write(unsure bool) *failure {
	if fail := w.writeJournal(unsure); fail != nil || w.unannounced == nil {
		return fail
	}
	return failed(fmt.Errorf("writing the interlock %s: %w", interlockActive, w.unannounced))
}

func (w *work) writeJournal(unsure bool) *failure {
	e, d := w.engine, w.decision
	if d.resume {
		r := e.journal.now()
		w.stamp = e.workStamp(r.Started)
		if !e.adopted || unsure {
			return nil
		}
		e.adopted = false
		return failed(e.journal.add(entry{Kind: kindResume}))
	}
	former := e.journal.now()
	started := time.Now()
	w.stamp = e.workStamp(started)
	w.again = former.is(d.begin.target()) && !former.Succeeded
	b := d.begin
	first := entry{Kind: kindBegin, Time: started, Begin: &b, Unsure: unsure, delivered: delivered{
		Plan: w.snapshot.Delivery.Plan, MaxFailures: w.snapshot.Delivery.MaxFailures, ProbePeriod: w.snapshot.Delivery.ProbePeriod}}
	var more []entry
	var fail *failure
	if w.invalid == nil && len(w.plan.Files) == 0 && len(w.plan.Instructions) > 0 && w.plan.Instructions[0].Image == "" {
		if fail = failed(w.prepare(context.Background(), 0)); fail == nil {
			w.ready = true
			more = append(more, w.startEntry(0))
		}
	}
	if err := e.journal.begin(first, more...); err != nil {
		return &failure{err: err}
	}
	return fail
}

func failed(err error) *failure {
	if err == nil {
		return nil
	}
	return &failure{err: err}
}
