package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/plans"
)

// firstPeriodic is how long the report of a success waits for the first runs of periodic instructions. Those that take longer are
// left out of it, so that nobody takes an output from before the plan for one after it.
const firstPeriodic = 15 * time.Second

// runner keeps the probes and periodic instructions of one plan going, each on its own.
type runner struct {
	target target
	cancel context.CancelFunc
	all    sync.WaitGroup
	// endPeriodic ends the periodic instructions alone; ended tells that it was called. Both are the loop's.
	endPeriodic context.CancelFunc
	ended       bool
	// first is closed when every probe and every periodic instruction has been tried once.
	first chan struct{}

	engine *Engine
	mu     sync.Mutex
	probes map[string]plans.ProbeStatus
	output map[string]plans.PeriodicOutput
	// free is closed while periodic instructions may begin to run; nil is for closed.
	free chan struct{}
}

func (r *runner) is(t target) bool {
	return r != nil && r.target == t
}

// stop ends everything and waits for it; programs get SIGTERM.
func (r *runner) stop() {
	if r != nil {
		r.cancel()
		r.all.Wait()
	}
}

// endPeriodics ends periodic instructions and what they run.
func (r *runner) endPeriodics() {
	r.ended = true
	r.endPeriodic()
}

// hold keeps periodic instructions from beginning to run while it is set; what runs goes on.
func (r *runner) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case held && r.free == nil:
		r.free = make(chan struct{})
	case !held && r.free != nil:
		close(r.free)
		r.free = nil
	}
}

// allowed waits until a periodic instruction may run.
func (r *runner) allowed(ctx context.Context) bool {
	r.mu.Lock()
	free := r.free
	r.mu.Unlock()
	if free == nil {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-free:
		return true
	}
}

// startRunner starts the probes and periodic instructions of a plan. After an apply all start anew; otherwise they go on from what was
// reported.
func (e *Engine) startRunner(t target, plan plans.Plan, applied bool) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	periodics, end := context.WithCancel(ctx)
	r := &runner{target: t, cancel: cancel, endPeriodic: end, first: make(chan struct{}), engine: e,
		probes: map[string]plans.ProbeStatus{}, output: map[string]plans.PeriodicOutput{}}
	if e.periodicsEnd() {
		r.endPeriodics()
	}
	r.hold(e.current.Interrupt.Paused || e.current.Interrupt.Invalid != nil)
	var probed, ran sync.WaitGroup
	period := e.current.Delivery.ProbePeriod
	if len(plan.Probes) == 0 {
		e.reporter.probed(t, nil)
	}
	if applied || len(plan.PeriodicInstructions) == 0 {
		// What ran before the plan was applied tells nothing about it.
		e.reporter.ran(t, nil)
	}
	r.mu.Lock() // what is started waits until all that was reported is in its place
	defer r.mu.Unlock()
	for name, p := range plan.Probes {
		status, reported := e.current.Status.ProbeStatuses[name]
		if reported {
			r.probes[name] = status
		}
		probed.Add(1)
		r.all.Go(func() { r.probe(ctx, name, p, !reported, period, probed.Done) })
	}
	for i, p := range plan.PeriodicInstructions {
		last, reported := e.current.Status.PeriodicOutput[p.Name]
		if reported && !applied {
			r.output[p.Name] = last
		}
		ran.Add(1)
		r.all.Go(func() { r.periodic(periodics, p, i, last, applied, ran.Done) })
	}
	r.all.Go(func() {
		wait(ctx, &ran, firstPeriodic)
		wait(ctx, &probed, 0)
		close(r.first)
	})
	return r
}

// probe asks one endpoint for ever, and reports when its status changes.
func (r *runner) probe(ctx context.Context, name string, p plans.Probe, fresh bool, period time.Duration, tried func()) {
	tried = sync.OnceFunc(tried)
	defer tried()
	if fresh && !sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return
	}
	for {
		err := r.engine.check(ctx, p)
		if ctx.Err() != nil {
			return
		}
		r.answered(name, p, err)
		tried()
		if !sleep(ctx, period) {
			return
		}
	}
}

func (r *runner) answered(name string, p plans.Probe, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.probes[name]
	is := probe.Count(p, was, err == nil)
	defer func() { r.engine.board.probed(err == nil, maps.Clone(r.probes)) }()
	if known && is == was {
		return
	}
	r.probes[name] = is
	if !known || is.Healthy != was.Healthy {
		r.engine.Log.Info("Probe changed", "probe", name, "healthy", is.Healthy, "error", err)
	}
	r.engine.reporter.probed(r.target, maps.Clone(r.probes))
}

// wait waits for a group for as long as ctx is not done, and no longer than most, where that is not 0.
func wait(ctx context.Context, group *sync.WaitGroup, most time.Duration) {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-ctx.Done():
	case <-done:
	}
}
