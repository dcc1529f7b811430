// Package report writes to the source how a plan stands: outcomes, interruptions, probes, periodic instructions and progress. It decides
// what the keys of the plan Secret say and when they are written, never what is done with a plan. The engine hands over what happens and
// is not kept waiting.
package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// batchDelay is how long the Reporter waits for more changes of probes and periodic instructions before it writes.
	batchDelay = 200 * time.Millisecond

	firstRetry, longestRetry = time.Second, time.Minute
)

// Observer observes the writes. Its methods are called from the goroutine of Run.
type Observer interface {
	// ReportSent is called when the source has taken a report.
	ReportSent()
	// ReportFailed is called when a report could not be written; it will be retried.
	ReportFailed(err error)
}

// Reporter writes reports to a source in its own time: it batches what comes together and retries until the source takes it. All methods
// may be called from any goroutine.
type Reporter struct {
	source   source.Source
	log      *slog.Logger
	observer Observer
	// wake is signaled when pending or blocked changes.
	wake chan struct{}
	// delivered is signaled when an outcome or an interruption has been written.
	delivered chan struct{}

	mu      sync.Mutex
	pending pending
	// lastOutcome and lastInterruption were handed over last, lastDelivered is the outcome that was written last.
	lastOutcome      Outcome
	lastInterruption Interruption
	lastDelivered    Outcome
	// trimLevel grows with each report that was too large.
	trimLevel int
	// blocked is set while nothing may be written.
	blocked bool
	// abortWrite ends a write or a back-off that an urgent report must not wait for; nil when there is none.
	abortWrite context.CancelFunc
}

// New makes a Reporter; Run starts it.
func New(src source.Source, log *slog.Logger, observer Observer) *Reporter {
	return &Reporter{source: src, log: log, observer: observer, wake: make(chan struct{}, 1), delivered: make(chan struct{}, 1),
		pending: newPending(source.PlanID{})}
}

// Outcome hands an outcome over. It is written when ready is closed; nil means at once. The same outcome again is ignored, unless resend is
// set.
func (r *Reporter) Outcome(o Outcome, ready <-chan struct{}, resend bool) {
	r.change(o.Record.PlanID(), func(p *pending) {
		if !resend && r.lastOutcome.Record.Checksum != "" && r.lastOutcome.Record.Same(o.Record) && r.lastOutcome.Final == o.Final {
			return
		}
		r.lastOutcome, r.lastInterruption = o, Interruption{}
		p.outcome, p.ready = &o, ready
		delete(p.parts, partProgress)
		r.expedite()
	})
}

// Interruption hands over that a plan was paused or canceled. The same interruption again is ignored, until ResetInterruption.
func (r *Reporter) Interruption(id source.PlanID, i Interruption) {
	r.change(id, func(p *pending) {
		if r.lastInterruption == i {
			return
		}
		r.lastInterruption = i
		p.interruption = &i
		delete(p.parts, partProgress)
		r.expedite()
	})
}

// ResetInterruption forgets an interruption because the plan goes on.
func (r *Reporter) ResetInterruption() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastInterruption, r.pending.interruption = Interruption{}, nil
}

// Probes hands over the state of all probes by name; nil removes what was reported before.
func (r *Reporter) Probes(id source.PlanID, statuses map[string]plans.ProbeStatus) {
	r.set(id, partProbes, func(s *plans.Status, _ int) { s.ProbeStatuses = statuses })
}

// Periodic hands over the last outcome of all periodic instructions by name; nil removes what was reported before.
func (r *Reporter) Periodic(id source.PlanID, outputs map[string]plans.PeriodicOutput) {
	r.set(id, partPeriodic, func(s *plans.Status, trimLevel int) {
		if len(outputs) > 0 || s.PeriodicOutput != nil {
			s.PeriodicOutput = trimPeriodic(outputs, trimLevel)
		}
	})
}

// set makes a part of the status pending. Progress is ignored while an outcome is pending.
func (r *Reporter) set(id source.PlanID, part part, write func(s *plans.Status, trimLevel int)) {
	r.change(id, func(p *pending) {
		if part != partProgress || p.outcome == nil {
			p.parts[part] = write
		}
	})
}

// Observe records what the source holds. While its interrupt annotations are invalid, nothing is written.
func (r *Reporter) Observe(s source.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lastInterruption.State == s.Status.State {
		r.lastInterruption = Interruption{} // it is written, so the next one is another
	}
	if blocked := s.Interrupt.Invalid != nil; blocked != r.blocked {
		r.blocked = blocked
		signal(r.wake)
	}
}

// Delivered is signaled when an outcome or an interruption has been written; LastDelivered returns the outcome.
func (r *Reporter) Delivered() <-chan struct{} { return r.delivered }

// LastDelivered is the outcome that was written last.
func (r *Reporter) LastDelivered() Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastDelivered
}

// change changes what is pending for a plan. Reports about another plan are dropped.
func (r *Reporter) change(id source.PlanID, do func(*pending)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending.plan != id {
		r.forget(r.pending)
		r.pending = newPending(id)
	}
	do(&r.pending)
	signal(r.wake)
}

// expedite ends what an urgent report must not wait for. It needs mu.
func (r *Reporter) expedite() {
	if r.abortWrite != nil {
		r.abortWrite()
	}
}

// Run writes reports until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	for failures := 0; r.awaitPending(ctx) && ctx.Err() == nil; {
		err := r.write(ctx)
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		delay := retry.Delay(failures, firstRetry, longestRetry)
		r.log.Warn("Reporting to the source failed, retrying", "error", err, "retryIn", delay.Round(time.Millisecond))
		abortable, done := r.abortable(ctx, r.urgent())
		_ = retry.Sleep(abortable, delay)
		done()
		signal(r.wake)
	}
}

// abortable returns a context that ends as soon as something urgent comes, unless what it is for is urgent itself.
func (r *Reporter) abortable(ctx context.Context, urgent bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if urgent {
		return ctx, cancel
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abortWrite = cancel
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.abortWrite = nil
		cancel()
	}
}

func (r *Reporter) urgent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending.urgent()
}

// awaitPending waits until something is pending and may be written: an outcome when it is ready, anything less urgent after batchDelay.
func (r *Reporter) awaitPending(ctx context.Context) bool {
	var batch <-chan time.Time
	for {
		r.mu.Lock()
		nothing, urgent, ready := r.blocked || r.pending.empty(), r.pending.urgent(), r.pending.ready
		r.mu.Unlock()
		switch {
		case nothing:
			batch, ready = nil, nil
		case ready != nil:
			batch = nil
		case urgent:
			return true
		case batch == nil:
			batch = time.After(batchDelay)
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.wake:
		case <-batch:
			return true
		case <-ready:
			r.mu.Lock()
			if r.pending.ready == ready {
				r.pending.ready = nil
			}
			r.mu.Unlock()
		}
	}
}

// write delivers what is pending. What comes during the write stays pending.
func (r *Reporter) write(ctx context.Context) error {
	p, trimLevel := r.take()
	if p.empty() {
		return nil
	}
	abortable, done := r.abortable(ctx, p.urgent())
	_, err := r.source.Update(abortable, p.plan.UID, p.plan.Checksum, func(s *plans.Status) { p.apply(s, trimLevel) })
	aborted := err != nil && abortable.Err() != nil && ctx.Err() == nil
	done()
	switch {
	case err == nil:
	case errors.Is(err, source.ErrSuperseded):
		r.log.Info("Dropping the report about a plan that was replaced", "checksum", plans.ShortChecksum(p.plan.Checksum))
		r.mu.Lock()
		r.forget(p)
		r.mu.Unlock()
		return nil
	case aborted:
		r.putBack(p, false)
		return nil
	default:
		r.putBack(p, errors.Is(err, source.ErrTooLarge))
		r.observer.ReportFailed(err)
		return err
	}
	r.observer.ReportSent()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trimLevel = 0
	if p.outcome != nil {
		r.lastDelivered = *p.outcome
	}
	if p.urgent() {
		signal(r.delivered)
	}
	return nil
}

// take takes what may be written now.
func (r *Reporter) take() (pending, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending
	if p.ready != nil || r.blocked {
		signal(r.wake) // that came since awaitPending
		return pending{}, 0
	}
	r.pending = newPending(p.plan)
	return p, r.trimLevel
}

// forget lets what could not be written be handed over again, should its plan be delivered again. It needs mu.
func (r *Reporter) forget(p pending) {
	if p.outcome != nil && r.lastOutcome.Record.Same(p.outcome.Record) {
		r.lastOutcome = Outcome{}
	}
	if p.interruption != nil && r.lastInterruption == *p.interruption {
		r.lastInterruption = Interruption{}
	}
}

// putBack keeps what could not be written, unless something newer has come, or a report about another plan.
func (r *Reporter) putBack(p pending, tooLarge bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tooLarge {
		r.trimLevel++
	}
	if r.pending.plan != p.plan {
		r.forget(p)
		return
	}
	r.pending.addOlder(p)
}

// signal signals a channel with a buffer of one, once.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
