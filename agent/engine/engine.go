// Package engine applies plans to the machine: files, instructions, periodic instructions and probes, each under the rules of both
// protocols of the plan Secret. It owns the journal, by which it goes on after a crash where it stopped. It talks to the hub only through
// a Source, touches the machine only through a host.Host, and never ends because either of them fails.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/plans"
)

// Options of an Engine. Source, Host, Images, Log and the two directories must be set.
type Options struct {
	// Name of the source, for people: "hub" where empty.
	Name   string
	Source Source
	Host   host.Host
	Images Images
	Log    *slog.Logger
	// Environment is what instructions inherit, as NAME=value.
	Environment []string

	WorkDirectory         string
	StateDirectory        string
	PreserveWorkDirectory bool
	// AppliedPlanDirectory and InterlockDirectory may be empty.
	AppliedPlanDirectory string
	InterlockDirectory   string
	// InstructionTimeout and PeriodicTimeout end what runs longer; 0 means never.
	InstructionTimeout time.Duration
	PeriodicTimeout    time.Duration
	// Gate is shared by engines of one machine; nil where there is only one.
	Gate *Gate
	// Verify tells why nothing of a plan may be executed; nil where all may. Nothing is written for a plan that it refuses. What
	// it must remember of a plan that it accepts is on the disk when it returns.
	Verify func(Snapshot) error
}

// Engine applies the plans of one Source, one at a time.
type Engine struct {
	Options
	journal  *journal
	reporter *reporter
	runner   *runner
	check    func(context.Context, plans.Probe) error
	// current is the newest snapshot; its zero value means that nothing has come yet.
	current Snapshot
	seen    bool
	// failures counts what went wrong in a row while talking to the source.
	failures int
}

// New makes an Engine; Run starts it.
func New(options Options) *Engine {
	return &Engine{Options: options, reporter: newReporter(options.Source, options.Log), check: probe.Check}
}

// Run works until ctx is done. It returns ctx's error, or that the state directory cannot be read.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.open(); err != nil {
		return err
	}
	e.Host.Notify("STATUS=Watching for plans")
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.reporter.run(ctx)
	}()
	defer func() {
		e.runner.stop()
		<-done
	}()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e.current = <-e.Source.Updates():
			e.seen = true
		case <-e.reporter.news:
			e.reported(e.reporter.delivered())
		case <-again:
		}
		again = nil
		if !e.seen {
			continue
		}
		if wait := e.step(ctx); wait > 0 {
			again = time.After(wait)
		}
	}
}

// open reads what an earlier run left.
func (e *Engine) open() error {
	path := filepath.Join(e.StateDirectory, "journal")
	if err := e.Host.MakeDir(e.StateDirectory, host.Private(0o700)); err != nil {
		return err
	}
	raw, err := e.Host.ReadFile(path)
	if err != nil && !isNotExist(err) {
		return err
	}
	if e.journal, err = openJournal(e.Host, path, raw); err != nil {
		e.Log.Error("The journal is damaged, plans will be applied anew", "error", err)
	}
	e.releaseInterlock()
	return nil
}

// step does what is to be done now and tells after what time to look again; 0 means not before something changes.
func (e *Engine) step(ctx context.Context) time.Duration {
	decision := e.decide()
	switch decision.action {
	case rest:
		e.run(false)
		return decision.wait
	case report:
		e.run(true)
		e.report(decision.final)
		return decision.wait
	}
	wait, err := e.begin(ctx)
	if err != nil && ctx.Err() == nil {
		e.failures++
		wait = jitter(min(time.Second<<min(e.failures-1, 6), time.Minute))
		e.Log.Warn("The plan cannot be started yet", "error", err, "retryIn", wait.Round(time.Millisecond))
		return wait
	}
	e.failures = 0
	return wait
}

func (e *Engine) decide() decision {
	return e.adopt(decide(e.current, e.journal.record, e.journal.attempts, time.Now()))
}

// begin makes sure that the plan is still the one to apply, and applies it.
func (e *Engine) begin(ctx context.Context) (time.Duration, error) {
	live, err := e.Source.Get(ctx)
	if err != nil {
		return 0, err
	}
	e.current = live
	d := e.decide()
	if d.action != apply {
		return time.Nanosecond, nil // look again at once
	}
	wait, err := e.takeInterlock()
	if err != nil || wait > 0 {
		return wait, err
	}
	defer e.releaseInterlock()
	if d.commit {
		committed, err := e.commit(ctx, live, d)
		if err != nil {
			return 0, err // what was read before is still the plan to apply
		}
		e.current = committed
		after := e.decide()
		if after.action != apply || after.commit || after.begin.Checksum != d.begin.Checksum || after.begin.Revision != d.begin.Revision {
			return time.Nanosecond, nil
		}
	}
	e.runner.stop()
	e.runner = nil
	e.Log.Info("Applying plan", "checksum", short(d.begin.Checksum), "attempt", d.begin.Attempt, "resume", d.resume, "reason", d.reason)
	e.Host.Notify("STATUS=Applying plan " + short(d.begin.Checksum))
	e.apply(ctx, d)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	r := e.journal.record
	e.Host.Notify("STATUS=Plan " + short(r.Checksum) + " " + outcomeWord(r))
	e.Log.Info("Plan ended", "checksum", short(r.Checksum), "attempt", r.Attempt, "succeeded", r.Succeeded,
		"duration", r.Ended.Sub(r.Started).Round(time.Millisecond))
	return time.Nanosecond, nil
}

// commit tells the source that the plan is in progress, before anything is done for it.
func (e *Engine) commit(ctx context.Context, live Snapshot, d decision) (Snapshot, error) {
	committed, err := e.Source.Update(ctx, live.UID, live.Delivery.Checksum(), func(s *plans.Status) {
		if s.State == plans.StatePending {
			s.State, s.Revision = plans.StateInProgress, d.begin.Revision
			if s.FailedChecksum != d.begin.Checksum {
				// What a former plan failed with tells nothing about this one.
				s.FailedChecksum, s.FailureCount, s.FailedOutput = "", 0, nil
			}
		}
	})
	if errors.Is(err, ErrSuperseded) {
		return e.Source.Get(ctx)
	}
	return committed, err
}

// run makes sure that probes and periodic instructions of the current plan run. After an apply they start afresh.
func (e *Engine) run(applied bool) {
	t := e.current.target()
	if e.runner.is(t) {
		return
	}
	e.runner.stop()
	e.runner = nil
	plan, err := plans.Decode(e.current.Delivery.Plan)
	if err != nil || plan.Validate() != nil {
		return // its failure has been or will be reported by apply
	}
	e.runner = e.startRunner(t, plan, applied)
}

// report hands the outcome to the reporter. A success waits for the first answers of the probes: until then nobody could tell a
// healthy machine from one that was never probed.
func (e *Engine) report(final bool) {
	var hold <-chan struct{}
	if e.journal.record.Succeeded && e.runner != nil {
		hold = e.runner.first
	}
	e.reporter.report(outcome{record: e.journal.record, byState: e.current.Status.State != "", final: final}, hold)
}

// reported takes note that the source knows the outcome of an attempt.
func (e *Engine) reported(attempt begin) {
	if e.journal.record.begin == attempt && e.journal.record.Reported.IsZero() {
		if err := e.journal.add(entry{Kind: kindReported}); err != nil {
			e.Log.Error("The journal cannot be written", "error", err)
		}
	}
}

// jitter spreads a pause by a quarter, so that a thousand agents do not come back at once.
func jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2)
}

func short(checksum string) string {
	return checksum[:min(len(checksum), 12)]
}

func outcomeWord(r record) string {
	if r.Succeeded {
		return "is applied"
	}
	return "has failed"
}

// State is what the engine does at the moment.
func (e *Engine) State() State { return State{Source: "hub", Doing: DoingNothing} }

// Retry tries a failed plan again now.
func (e *Engine) Retry() error { return errors.New("not there yet") }

// Alive tells whether the engine still answers, or is inside a step whose own deadline has not passed.
func (e *Engine) Alive(time.Time) bool { return true }

// History is the last attempts, the newest last.
func (e *Engine) History() ([]Attempt, error) { return nil, nil }

// Plan is the plan that was delivered last, as the raw bytes.
func (e *Engine) Plan() []byte { return nil }
