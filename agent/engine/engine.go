// Package engine applies plans to the machine: files, instructions and periodic instructions, and probes what they made, each under the
// rules of both protocols of the plan Secret. It decides and applies; package journal remembers what was done, by which the engine goes on
// after a crash where it stopped, and package report writes to the source. It talks to the hub only through a source.Source, touches the
// machine only through a host.Host, and never ends because either of them fails.
package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/engine/report"
	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// firstContact is how long the source is given after a start to interrupt or replace an unfinished plan before that goes on.
	firstContact = 2 * time.Second
	// refusalRetry is how often a plan that may not be executed is checked again.
	refusalRetry = time.Minute
	// reportRetry is how often an outcome is handed over that is not reported yet: it is dropped when the source holds another plan, if only
	// for a moment.
	reportRetry = time.Minute
	// journalRetry is how often it is retried to write what the journal lacks.
	journalRetry = time.Minute

	firstRetry, longestRetry = time.Second, time.Minute
)

// Engine applies the plans of one source, one at a time.
type Engine struct {
	Options
	journal  *journal.Journal
	reporter *report.Reporter
	status   statusTracker
	check    func(context.Context, plans.Probe) (probe.Certificates, error)
	requests chan chan error
	// finished is closed when Run has returned.
	finished chan struct{}

	// The rest is used by Run's loop alone.

	runner  *runner
	attempt *attempt // nil while none is going on
	// current is the newest snapshot. Until seen is set none was received, and it is what the journal remembers.
	current source.Snapshot
	seen    bool
	// changed is set when a snapshot was received since the attempt began.
	changed bool
	// failures counts failures in a row to agree on an attempt with the source; none begins before notBefore, for waitReason.
	failures   int
	notBefore  time.Time
	waitReason string
	// retryPlan is the plan of which somebody at the machine has requested a retry.
	retryPlan source.PlanID
	// inherited is set while an attempt of an earlier process has not gone on yet.
	inherited bool
	// cleanup is what an attempt left to be done once its outcome has been handed over; nil for nothing.
	cleanup func()
	// remains is the attempt whose work folder and backups are kept until the journal has its end; nil for none.
	remains *journal.Record
}

// New makes an Engine; Run starts it.
func New(options Options) *Engine {
	if options.Name == "" {
		options.Name = HubName
	}
	if options.Notify == nil {
		options.Notify = func() {}
	}
	if options.Gate == nil {
		options.Gate = semaphore.NewWeighted(1)
	}
	e := &Engine{Options: options, check: probe.Check, requests: make(chan chan error), finished: make(chan struct{})}
	e.reporter = report.New(options.Source, options.Log, &e.status)
	return e
}

// Run applies plans until ctx is done; an Engine runs once. It returns ctx's error, or why the state directory cannot be used.
func (e *Engine) Run(ctx context.Context) error {
	unlock, err := e.open()
	if err != nil {
		return err
	}
	defer unlock()
	defer close(e.finished)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.reporter.Run(ctx)
	}()
	defer func() {
		e.shutDown(ctx)
		<-done
	}()
	e.Notify()
	var timer <-chan time.Time
	if e.current.UID != "" {
		timer = time.After(firstContact)
	}
	for {
		e.status.loopBusy(time.Time{})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e.current = <-e.Source.Updates():
			e.seen, e.changed, e.notBefore = true, true, time.Time{}
			e.reporter.Observe(e.current)
			e.status.sourceAnswered()
		case <-e.reporter.Delivered():
			e.confirm(e.reporter.LastDelivered())
		case <-e.attempt.ended():
			e.finish()
		case answer := <-e.requests:
			answer <- e.requestRetry()
		case <-timer:
			e.seen = e.seen || e.current.UID != ""
		}
		e.status.loopBusy(time.Now())
		if !e.seen {
			continue // the timer of the first contact runs on
		}
		timer = nil
		if wait := e.step(ctx); wait > 0 {
			timer = time.After(wait)
			e.status.update(func(s *State) { s.NextTry = time.Now().Add(wait).UTC() })
		}
	}
}

// step does what is to be done now and returns after what time to decide again; 0 means not before something changes.
func (e *Engine) step(ctx context.Context) time.Duration {
	if e.attempt != nil {
		e.attempt.interrupt(e.current.Interrupt)
		e.status.setSnapshot(e.current)
		return 0
	}
	d := e.decide()
	if err := e.refusal(d); err != nil {
		e.runCleanup()
		e.makeSpace(err)
		e.reportNotStored(d, err)
		e.status.setPhase(e.current, PhaseRefusing, err.Error())
		return refusalRetry
	}
	e.status.setPhase(e.current, d.phase(e.current), d.reason)
	switch d.action {
	case actionRefuse:
		e.updateRunner()
	case actionReport:
		e.run(true)
		e.report(d.final, d.resend)
		if d.wait == 0 && !d.resend {
			d.wait = reportRetry
		}
	case actionPause:
		e.run(false)
		e.pause()
	case actionCancel:
		if again := e.cancel(ctx); again {
			return time.Nanosecond
		}
		if e.attempt != nil {
			return 0
		}
		e.run(false)
	case actionApply:
		e.runCleanup()
		if e.stopInherited(ctx, d) {
			return 0
		}
		if wait := time.Until(e.notBefore); wait > 0 {
			e.status.setPhase(e.current, PhaseWaiting, e.waitReason)
			return wait
		}
		e.start(ctx, d)
		return 0
	default:
		e.run(false)
	}
	e.runCleanup()
	return e.flushJournal(d.wait)
}

// decide decides about the newest snapshot. An unfinished attempt of an earlier process comes first. Before a pause, what that process has
// started comes to its end, and before a cancellation of another plan, it is stopped.
func (e *Engine) decide() decision {
	r, attempts := e.journal.State()
	if e.unfinishedComesFirst(r) {
		return decision{action: actionApply, attempt: r.AttemptID, resume: true, reason: "the plan was interrupted, before the new plan came"}
	}
	if e.canceledWithAnother(r) && len(r.Plan) > 0 {
		return decision{action: actionApply, attempt: r.AttemptID, resume: true, reason: "the plan is canceled"}
	}
	d := e.decideFrom(e.current, r, attempts, e.retryPlan == e.current.PlanID())
	if d.action == actionPause && e.mayStillRun(r) && len(r.Plan) > 0 {
		return decision{action: actionApply, attempt: r.AttemptID, resume: true, reason: "the plan is paused when its instruction has ended"}
	}
	return d
}

// decideFrom decides about a snapshot, with regard to what a legacy agent has applied.
func (e *Engine) decideFrom(s source.Snapshot, r journal.Record, attempts map[string]journal.LastAttempt, retryRequested bool) decision {
	d := decider{Snapshot: s, last: r, attempts: attempts, now: time.Now(), retryRequested: retryRequested}.decide()
	if d.action == actionApply && !d.resume && e.appliedByLegacyAgent(s, r) {
		return decision{reason: "the plan was applied by the previous agent"}
	}
	return d
}

// refusal is why the plan may not be executed; nil when it may. An attempt that has begun was verified before.
func (e *Engine) refusal(d decision) error {
	if e.Verify == nil || len(e.current.Delivery.Plan) == 0 {
		return nil
	}
	r := e.journal.Record()
	if begun := r.AttemptID == d.attempt || r.Is(e.current.PlanID()); begun && (d.resume || d.action == actionReport) {
		return nil
	}
	return e.Verify(e.current)
}

// finish takes over the result of the attempt that has ended, or could not begin.
func (e *Engine) finish() {
	a := e.attempt
	e.attempt = nil
	e.cleanup = a.close
	e.status.update(func(s *State) { e.status.applying, e.status.deadline, s.Progress = false, time.Time{}, nil })
	if !a.begun {
		e.runner = a.runner // nothing was done to the machine, so its probes go on
	}
	if a.live != nil && !e.changed {
		e.current = *a.live
	}
	if a.begun {
		e.retryPlan = source.PlanID{}
		e.reporter.ResetInterruption()
	}
	if a.err == nil || errors.Is(a.err, errCanceled) || errors.Is(a.err, context.Canceled) {
		e.failures, e.notBefore, e.waitReason = 0, time.Now().Add(a.wait), "waiting for the announced restart of the agent"
		return
	}
	e.failures++
	delay := retry.Delay(e.failures, firstRetry, longestRetry)
	e.notBefore, e.waitReason = time.Now().Add(delay), "starting the plan failed: "+a.err.Error()
	e.status.sourceFailed(a.err)
	e.Log.Warn("Starting the plan failed, retrying", "error", a.err, "retryIn", delay.Round(time.Millisecond))
}

// runCleanup does what an attempt left to be done.
func (e *Engine) runCleanup() {
	if e.cleanup != nil {
		e.cleanup()
		e.cleanup = nil
	}
}

// report hands the outcome to the reporter. A success waits for the first results of the probes: until then a healthy machine could not be
// distinguished from one that was never probed.
func (e *Engine) report(final, resend bool) {
	var ready <-chan struct{}
	r := e.journal.Record()
	if r.Succeeded && e.runner != nil {
		ready = e.runner.firstResults
	}
	e.reporter.Outcome(report.Outcome{Record: r, ByState: e.current.Status.State != "", Final: final}, ready, resend)
}

// reportNotStored reports a refusal that has its cause on this machine: the plan is valid, and that it was accepted cannot be stored.
// Nothing is reported about a plan that nobody has signed, nor without plan-state, where each report would use up a try. What the
// source shows is not reported again, although the error may be another one each time, as with the name of a temporary file: a report comes
// back from the source as an update, after which the plan is verified again at once.
func (e *Engine) reportNotStored(d decision, refusal error) {
	status := e.current.Status
	reported := status.State == plans.StateInProgress &&
		strings.Contains(string(status.FailedOutput[report.ErrorOutput]), source.ErrNotStored.Error())
	if !errors.Is(refusal, source.ErrNotStored) || d.action != actionApply || d.resume || status.State == "" || reported {
		return
	}
	record := journal.Record{AttemptID: d.attempt, Result: journal.Result{Message: refusal.Error()}}
	e.reporter.Outcome(report.Outcome{Record: record, ByState: true, NotBegun: true, BeginFrom: d.beginFrom()}, nil, true)
}

// confirm journals that the source knows the outcome of the last attempt.
func (e *Engine) confirm(o report.Outcome) {
	r := e.journal.Record()
	if r.Checksum != "" && o.Record.Same(r) && (r.Reported.IsZero() || time.Since(r.Reported) >= reportGrace) {
		e.append(journal.Entry{Kind: journal.KindReported})
	}
}

// append writes an entry whose loss does no harm but that a step is repeated after a crash.
func (e *Engine) append(entry journal.Entry) {
	if err := e.journal.Append(entry); err != nil {
		e.Log.Error("Writing the journal failed", "error", err)
	}
}

// flushJournal writes what the journal lacks because a write has failed. It returns after what time to decide again, given the time that a
// decision named; 0 means not before something changes.
func (e *Engine) flushJournal(wait time.Duration) time.Duration {
	err := e.journal.Flush()
	if err == nil {
		e.removeRemains()
		return wait
	}
	e.Log.Warn("Writing the journal failed, retrying", "error", err, "retryIn", journalRetry)
	if wait == 0 {
		return journalRetry
	}
	return min(wait, journalRetry)
}

// removeRemains removes what was kept of an attempt because the journal lacked its end.
func (e *Engine) removeRemains() {
	if r := e.remains; r != nil {
		e.remains = nil
		e.removeWorkFolder(*r)
		e.removeBackups(*r)
	}
}

// warn logs the error of something without which plans are applied all the same; nil logs nothing.
func (e *Engine) warn(message string, err error) {
	if err != nil {
		e.Log.Warn(message, "error", err)
	}
}
