package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/drover-dev/drover/plans"
)

// gather is how long the reporter waits for more news of probes and periodic instructions before it writes.
const gather = 200 * time.Millisecond

// reporter brings news to the source, in its own time: it gathers what comes together, tries again for as long as it takes, and never
// keeps anyone waiting.
type reporter struct {
	source Source
	log    *slog.Logger
	board  *board
	wake   chan struct{}
	// news is signalled when an outcome or an interruption has been delivered.
	news chan struct{}

	mu       sync.Mutex
	pending  pending
	last     outcome // the outcome that was handed over last
	stopped  interruption
	arrived  outcome
	trimming int
	blocked  bool
	// hurry ends what may not keep an outcome waiting; it is set while there is such a thing.
	hurry context.CancelFunc
}

func newReporter(source Source, log *slog.Logger) *reporter {
	return &reporter{source: source, log: log, wake: make(chan struct{}, 1), news: make(chan struct{}, 1), board: &board{}}
}

// report hands an outcome over. Nothing is written before hold is closed. The same outcome twice is one, unless it shall be told again.
func (r *reporter) report(o outcome, hold <-chan struct{}, again bool) {
	r.change(o.record.target(), func(p *pending) {
		if !again && r.last.record.Checksum != "" && r.last.same(o.record) && r.last.final == o.final {
			return
		}
		r.last, r.stopped = o, interruption{}
		p.outcome, p.hold, p.progress, p.progressed = &o, hold, nil, false
		r.hasten()
	})
}

// interrupted hands over that a plan was paused or canceled. The same interruption twice is one.
func (r *reporter) interrupted(t target, i interruption) {
	r.change(t, func(p *pending) {
		if r.stopped == i {
			return
		}
		r.stopped = i
		p.interruption, p.progress, p.progressed = &i, nil, false
		r.hasten()
	})
}

// resumed lets an interruption be handed over again.
func (r *reporter) resumed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped, r.pending.interruption = interruption{}, nil
}

// probed hands the state of all probes over.
func (r *reporter) probed(t target, statuses map[string]plans.ProbeStatus) {
	r.change(t, func(p *pending) { p.probes, p.probed = statuses, true })
}

// ran hands the outcome of all periodic instructions over.
func (r *reporter) ran(t target, outputs map[string]plans.PeriodicOutput) {
	r.change(t, func(p *pending) { p.periodic, p.ran = outputs, true })
}

// progressed hands over what is being done.
func (r *reporter) progressed(t target, now plans.Progress) {
	r.change(t, func(p *pending) {
		if p.outcome == nil {
			p.progress, p.progressed = &now, true
		}
	})
}

// saw takes note of what the source holds. While that cannot be understood, nothing is written over it.
func (r *reporter) saw(s Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped.state == s.Status.State {
		r.stopped = interruption{} // it has arrived, so the next one is another
	}
	if blocked := s.Interrupt.Invalid != nil; blocked != r.blocked {
		r.blocked = blocked
		signal(r.wake)
	}
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

func (r *reporter) hasten() {
	if r.hurry != nil {
		r.hurry()
	}
}

// delivered is the outcome that the source knows.
func (r *reporter) delivered() outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrived
}

func (r *reporter) run(ctx context.Context) {
	for failures := 0; r.settle(ctx) && ctx.Err() == nil; {
		err := r.write(ctx)
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		failures++
		pause := jitter(min(time.Second<<min(failures-1, 6), time.Minute))
		r.log.Warn("The report cannot be delivered yet", "error", err, "retryIn", pause.Round(time.Millisecond))
		hurried, done := r.mayHurry(ctx, r.urgent())
		sleep(hurried, pause)
		done()
		signal(r.wake)
	}
}

// mayHurry gives a context that ends as soon as something urgent comes, unless what it is for is urgent itself.
func (r *reporter) mayHurry(ctx context.Context, urgent bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if urgent {
		return ctx, cancel
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hurry = cancel
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hurry = nil
		cancel()
	}
}

func (r *reporter) urgent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending.urgent()
}

// settle waits until something is pending and may be written: an outcome when what it waits for is there, other news after a moment in
// which more of it may come.
func (r *reporter) settle(ctx context.Context) bool {
	var moment <-chan time.Time
	for {
		r.mu.Lock()
		p, blocked := r.pending, r.blocked
		r.mu.Unlock()
		var hold <-chan struct{}
		switch {
		case blocked, p.empty():
			moment = nil
		case p.hold != nil:
			hold, moment = p.hold, nil
		case p.urgent():
			return true
		case moment == nil:
			moment = time.After(gather)
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.wake:
		case <-moment:
			return true
		case <-hold:
			r.mu.Lock()
			if r.pending.hold == hold {
				r.pending.hold = nil
			}
			r.mu.Unlock()
		}
	}
}

// write delivers what is pending. What came while it wrote stays pending.
func (r *reporter) write(ctx context.Context) error {
	p, trimming := r.take()
	if p.empty() {
		return nil
	}
	hurried, done := r.mayHurry(ctx, p.urgent())
	_, err := r.source.Update(hurried, p.target.UID, p.target.Checksum, func(s *plans.Status) { p.apply(s, trimming) })
	cut := err != nil && hurried.Err() != nil && ctx.Err() == nil
	done()
	switch {
	case err == nil:
	case errors.Is(err, ErrSuperseded):
		r.log.Info("Another plan has been delivered, the report about the former one is dropped", "checksum", short(p.target.Checksum))
		r.forget(p)
		return nil
	case cut:
		r.putBack(p, false)
		return nil
	default:
		r.putBack(p, errors.Is(err, ErrTooLarge))
		r.board.reportFailed(err)
		return err
	}
	r.board.reportSent()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trimming = 0
	if p.outcome != nil {
		r.arrived = *p.outcome
	}
	if p.urgent() {
		signal(r.news)
	}
	return nil
}

// take takes what may be written now.
func (r *reporter) take() (pending, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pending
	if p.hold != nil || r.blocked {
		signal(r.wake) // that came in the last moment
		return pending{}, 0
	}
	r.pending = pending{target: p.target}
	return p, r.trimming
}

// forget lets what could not be delivered be handed over again, should its plan come back.
func (r *reporter) forget(p pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.outcome != nil && r.last.same(p.outcome.record) {
		r.last = outcome{}
	}
	if p.interruption != nil && r.stopped == *p.interruption {
		r.stopped = interruption{}
	}
}

// putBack keeps what could not be delivered, unless newer news has come.
func (r *reporter) putBack(p pending, tooLarge bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tooLarge {
		r.trimming++
	}
	if r.pending.target == p.target {
		r.pending.addOlder(p)
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
