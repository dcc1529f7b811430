package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/drover-dev/drover/plans"
)

const (
	// gather is how long the reporter waits for more news before it writes.
	gather = 200 * time.Millisecond
	// errorOutput is the name under which a failure itself is reported, beside the outputs of instructions.
	errorOutput = "system-agent-error"
)

// outcome is how an attempt ended.
type outcome struct {
	record record
	// byState tells that the delivery follows plan-state.
	byState bool
	// final tells that a failure is the last one of its delivery.
	final bool
}

// reporter brings news to the source, in its own time: it gathers what comes together, tries again for as long as it takes, and never
// keeps anyone waiting.
type reporter struct {
	source Source
	log    *slog.Logger
	wake   chan struct{}
	// news is signalled when an outcome has been delivered.
	news chan struct{}

	mu       sync.Mutex
	pending  pending
	last     outcome // the outcome that was handed over last
	arrived  begin
	trimming int
}

// pending is what the source does not know yet. All of it is about one plan.
type pending struct {
	target   target
	outcome  *outcome
	hold     <-chan struct{}
	probes   map[string]plans.ProbeStatus
	periodic map[string]plans.PeriodicOutput
	// probed and ran tell that probes and periodic are to be written, even where they are empty.
	probed, ran bool
}

func (p pending) empty() bool {
	return p.outcome == nil && !p.probed && !p.ran
}

func newReporter(source Source, log *slog.Logger) *reporter {
	return &reporter{source: source, log: log, wake: make(chan struct{}, 1), news: make(chan struct{}, 1)}
}

// report hands an outcome over. Nothing is written before hold is closed. The same outcome twice is one.
func (r *reporter) report(o outcome, hold <-chan struct{}) {
	r.change(target{UID: o.record.UID, Checksum: o.record.Checksum}, func(p *pending) {
		if r.last.record.begin == o.record.begin && r.last.final == o.final && r.last.record.Checksum != "" {
			return
		}
		r.last = o
		p.outcome, p.hold = &o, hold
	})
}

// probed hands the state of all probes over.
func (r *reporter) probed(t target, statuses map[string]plans.ProbeStatus) {
	r.change(t, func(p *pending) { p.probes, p.probed = statuses, true })
}

// ran hands the outcome of all periodic instructions over.
func (r *reporter) ran(t target, outputs map[string]plans.PeriodicOutput) {
	r.change(t, func(p *pending) { p.periodic, p.ran = outputs, true })
}

func (r *reporter) change(t target, do func(*pending)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending.target != t {
		r.pending = pending{target: t}
	}
	do(&r.pending)
	signal(r.wake)
}

// delivered is the attempt whose outcome the source knows.
func (r *reporter) delivered() begin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrived
}

func (r *reporter) run(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		if !r.settle(ctx) {
			return
		}
		if err := r.write(ctx); err != nil && ctx.Err() == nil {
			failures++
			pause := jitter(min(time.Second<<min(failures-1, 6), time.Minute))
			r.log.Warn("The report cannot be delivered yet", "error", err, "retryIn", pause.Round(time.Millisecond))
			sleep(ctx, pause)
			signal(r.wake)
			continue
		}
		failures = 0
	}
}

// settle waits until what is pending may be written.
func (r *reporter) settle(ctx context.Context) bool {
	for {
		r.mu.Lock()
		hold := r.pending.hold
		r.mu.Unlock()
		if hold == nil {
			return sleep(ctx, gather)
		}
		select {
		case <-ctx.Done():
			return false
		case <-hold:
		}
		r.mu.Lock()
		if r.pending.hold == hold {
			r.pending.hold = nil
		}
		r.mu.Unlock()
	}
}

// write delivers what is pending. What came while it wrote stays pending.
func (r *reporter) write(ctx context.Context) error {
	p, trimming := r.take()
	if p.empty() {
		return nil
	}
	_, err := r.source.Update(ctx, p.target.UID, p.target.Checksum, func(s *plans.Status) { p.apply(s, trimming) })
	switch {
	case err == nil:
	case errors.Is(err, ErrSuperseded):
		r.log.Info("Another plan has been delivered, the report about the former one is dropped", "checksum", short(p.target.Checksum))
		r.forget(p.outcome)
		return nil
	default:
		r.putBack(p, errors.Is(err, ErrTooLarge))
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trimming = 0
	if p.outcome != nil {
		r.arrived = p.outcome.record.begin
		signal(r.news)
	}
	return nil
}

// take takes what may be written now.
func (r *reporter) take() (pending, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending
	if p.hold != nil {
		signal(r.wake) // an outcome came in the last moment
		return pending{}, 0
	}
	r.pending = pending{target: p.target}
	return p, r.trimming
}

// forget lets an outcome that could not be delivered be handed over again, should its plan come back.
func (r *reporter) forget(o *outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o != nil && r.last.record.begin == o.record.begin {
		r.last = outcome{}
	}
}

// putBack keeps what could not be delivered, unless newer news has come.
func (r *reporter) putBack(p pending, tooLarge bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tooLarge {
		r.trimming++
	}
	if r.pending.target != p.target {
		return
	}
	if r.pending.outcome == nil {
		r.pending.outcome = p.outcome
	}
	if !r.pending.probed {
		r.pending.probes, r.pending.probed = p.probes, p.probed
	}
	if !r.pending.ran {
		r.pending.periodic, r.pending.ran = p.periodic, p.ran
	}
}

// apply writes the news into a status.
func (p pending) apply(s *plans.Status, trimming int) {
	if p.outcome != nil {
		p.outcome.apply(s, trimming)
	}
	if p.probed {
		s.ProbeStatuses = p.probes
	}
	if p.ran && (len(p.periodic) > 0 || s.PeriodicOutput != nil) {
		s.PeriodicOutput = trimPeriodic(p.periodic, trimming)
	}
}

// apply writes the outcome, unless the status is of another delivery by now.
func (o outcome) apply(s *plans.Status, trimming int) {
	r := o.record
	if o.byState != (s.State != "") || o.byState && (s.State != plans.StateInProgress || s.Revision != r.Revision) {
		return
	}
	s.LastApplyTime = r.Started
	if r.Succeeded {
		s.AppliedChecksum, s.FailedChecksum = r.Checksum, ""
		s.AppliedOutput, s.FailedOutput = trimOutputs(r.Outputs, trimming), nil
		s.FailureCount, s.SuccessCount = 0, r.SuccessesBefore+1
		s.Checkpoint = nil
		if o.byState {
			s.State = plans.StateSucceeded
		}
		return
	}
	outputs := trimOutputs(r.Outputs, trimming)
	outputs[errorOutput] = []byte(r.Message)
	s.FailedOutput = outputs
	s.FailureCount, s.SuccessCount = r.FailuresBefore+r.Tries, 0
	// A hub takes the checksum for the verdict; while the agent still tries, there is none.
	if o.final || !o.byState {
		s.FailedChecksum = r.Checksum
	}
	if o.final && o.byState {
		s.State = plans.StateFailed
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep tells whether the time has passed before ctx was done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
