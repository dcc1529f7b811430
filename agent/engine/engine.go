// Package engine applies plans to the machine: files, instructions, periodic instructions and probes, each under the rules of both
// protocols of the plan Secret. It owns the journal, by which it goes on after a crash where it stopped. It talks to the hub only through
// a Source, touches the machine only through a host.Host, and never ends because either of them fails.
package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/plans"
)

// firstLook is how long the source is given, after a start, to say that an interrupted plan is not to go on.
const firstLook = 2 * time.Second

// Engine applies the plans of one Source, one at a time.
type Engine struct {
	Options
	journal  *journal
	reporter *reporter
	board    board
	check    func(context.Context, plans.Probe) error
	requests chan chan error

	// The rest is used by Run's loop alone.
	runner *runner
	work   *work
	// current is the newest snapshot. Until seen is set nothing has come, and it is what the journal remembers.
	current Snapshot
	seen    bool
	// newer is set when a snapshot has come since the work began.
	newer bool
	// failures counts what went wrong in a row while talking to the source; nothing is begun before notBefore.
	failures  int
	notBefore time.Time
	waitsFor  string
	// asked is the plan that someone wants to be tried again.
	asked target
	// adopted is set while an attempt of an earlier process has not gone on yet.
	adopted bool
	// tidy is what an attempt left to be done when its outcome has been handed over.
	tidy func()
	// spent, written and kept are of the history: the spools, how many lines it has, and which attempt is its last.
	spent   spent
	written int
	kept    string
	// finished is closed when Run has returned.
	finished chan struct{}
}

// New makes an Engine; Run starts it.
func New(options Options) *Engine {
	if options.Name == "" {
		options.Name = "hub"
	}
	e := &Engine{Options: options, check: probe.Check, requests: make(chan chan error), finished: make(chan struct{})}
	e.reporter = newReporter(options.Source, options.Log)
	e.reporter.board = &e.board
	return e
}

// Run works until ctx is done; an Engine runs once. It returns ctx's error, or that the state directory cannot be used.
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
		e.reporter.run(ctx)
	}()
	defer func() {
		e.leave(ctx)
		<-done
	}()
	e.Host.Notify("STATUS=Watching for plans")
	var again <-chan time.Time
	if e.current.UID != "" {
		again = time.After(firstLook)
	}
	for {
		e.board.idle()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e.current = <-e.Source.Updates():
			e.seen, e.newer, e.notBefore = true, true, time.Time{}
			e.reporter.saw(e.current)
			e.board.sourceAnswered()
		case <-e.reporter.news:
			e.reported(e.reporter.delivered())
		case <-e.work.ended():
			e.finish()
		case answer := <-e.requests:
			answer <- e.ask()
		case <-again:
			e.seen = e.seen || e.current.UID != ""
		}
		e.board.busy(time.Now())
		again = nil
		if !e.seen {
			continue
		}
		if wait := e.step(ctx); wait > 0 {
			again = time.After(wait)
			e.board.next(time.Now().Add(wait))
		}
	}
}

// step does what is to be done now and tells after what time to look again; 0 means not before something changes.
func (e *Engine) step(ctx context.Context) time.Duration {
	if e.work != nil {
		e.work.interrupt(e.current.Interrupt)
		e.board.follow(e.current)
		return 0
	}
	d := e.decide()
	if err := e.refusal(d); err != nil {
		e.tidyUp()
		e.board.show(e.current, DoingRefuse, err.Error())
		return time.Minute
	}
	e.board.show(e.current, d.doing(e.current), d.reason)
	switch d.action {
	case block:
		e.watchRunner()
	case report:
		e.run(true)
		e.report(d.final, d.again)
	case pause:
		e.run(false)
		e.pause()
	case cancel:
		if again := e.cancel(ctx); again {
			return time.Nanosecond
		}
		if e.work != nil {
			return 0
		}
		e.run(false)
	case apply:
		e.tidyUp()
		if wait := time.Until(e.notBefore); wait > 0 {
			e.board.show(e.current, DoingWait, e.waitsFor)
			return wait
		}
		e.start(ctx, d)
		return 0
	default:
		e.run(false)
	}
	e.tidyUp()
	return d.wait
}

func (e *Engine) decide() decision {
	r, attempts := e.journal.state()
	if e.comesFirst(r) {
		return decision{action: apply, begin: r.begin, resume: true, reason: "the plan was interrupted, and comes before the one that is new"}
	}
	return e.adopt(e.current, r, decide(e.current, r, attempts, time.Now(), e.asked == e.current.target()))
}

// refusal is why the plan may not be executed. An attempt that was begun was verified before.
func (e *Engine) refusal(d decision) error {
	if e.Verify == nil || len(e.current.Delivery.Plan) == 0 {
		return nil
	}
	r := e.journal.now()
	if begun := r.begin == d.begin || r.is(e.current.target()); begun && !r.Unsure && (d.resume || d.action == report) {
		return nil
	}
	return e.Verify(e.current)
}

// finish takes over what came of the work that has ended.
func (e *Engine) finish() {
	w := e.work
	e.work = nil
	e.tidy = w.close
	e.board.over()
	if !w.begun {
		e.runner = w.runner // nothing was done to the machine, so its probes go on
	}
	if w.live != nil && !e.newer {
		e.current = *w.live
	}
	if w.begun {
		e.asked = target{}
		e.reporter.resumed()
	}
	if w.err == nil || errors.Is(w.err, errCanceled) || errors.Is(w.err, context.Canceled) {
		e.failures, e.notBefore, e.waitsFor = 0, time.Now().Add(w.wait), "waiting for the announced restart of the agent"
		return
	}
	e.failures++
	wait := jitter(min(time.Second<<min(e.failures-1, 6), time.Minute))
	e.notBefore, e.waitsFor = time.Now().Add(wait), "the plan cannot be started yet: "+w.err.Error()
	e.board.sourceFailed(w.err)
	e.Log.Warn("The plan cannot be started yet", "error", w.err, "retryIn", wait.Round(time.Millisecond))
}

// tidyUp does what an attempt left to be done.
func (e *Engine) tidyUp() {
	if e.tidy != nil {
		e.tidy()
		e.tidy = nil
	}
}

// report hands the outcome to the reporter. A success waits for the first answers of the probes: until then nobody could tell a
// healthy machine from one that was never probed.
func (e *Engine) report(final, again bool) {
	var hold <-chan struct{}
	r := e.journal.now()
	if r.Succeeded && e.runner != nil {
		hold = e.runner.first
	}
	e.reporter.report(outcome{record: r, byState: e.current.Status.State != "", final: final}, hold, again)
}

// reported takes note that the source knows the outcome of an attempt.
func (e *Engine) reported(o outcome) {
	r := e.journal.now()
	if r.Checksum != "" && o.same(r) && (r.Reported.IsZero() || time.Since(r.Reported) >= settle) {
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
