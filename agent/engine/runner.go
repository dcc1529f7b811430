package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/probe"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// firstPeriodicTimeout is how long the report of a success waits for the first runs of periodic instructions. Those that take longer are
// left out of it, so that an output from before the plan is not taken for one after it.
const firstPeriodicTimeout = 15 * time.Second

// runner runs the probes and periodic instructions of one plan, each in a goroutine of its own. The nil runner runs nothing.
type runner struct {
	plan   source.PlanID
	cancel context.CancelFunc
	all    sync.WaitGroup
	// cancelPeriodics ends the periodic instructions alone; periodicsEnded says that it was called. Both are the loop's.
	cancelPeriodics context.CancelFunc
	periodicsEnded  bool
	// firstResults is closed when every probe and every periodic instruction has been tried once.
	firstResults chan struct{}

	engine *Engine
	// probeCount is how many probes the plan has.
	probeCount int

	mu     sync.Mutex
	probes map[string]plans.ProbeStatus
	// reported is what the newest snapshot of the plan holds.
	reported map[string]plans.ProbeStatus
	// certificates are the ends of the distribution's certificates by path. Each is another map, never changed.
	certificates map[string]time.Time
	output       map[string]plans.PeriodicOutput
	// unpaused is closed when periodic instructions may start again; nil while they are not paused.
	unpaused chan struct{}
}

// is reports whether the runner is that of a plan.
func (r *runner) is(id source.PlanID) bool {
	return r != nil && r.plan == id
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
	r.periodicsEnded = true
	r.cancelPeriodics()
}

// setPaused keeps periodic instructions from starting while it is set; one that runs goes on.
func (r *runner) setPaused(paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case paused && r.unpaused == nil:
		r.unpaused = make(chan struct{})
	case !paused && r.unpaused != nil:
		close(r.unpaused)
		r.unpaused = nil
	}
}

// awaitUnpaused waits until a periodic instruction may start; false means that ctx is done.
func (r *runner) awaitUnpaused(ctx context.Context) bool {
	r.mu.Lock()
	unpaused := r.unpaused
	r.mu.Unlock()
	if unpaused == nil {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-unpaused:
		return true
	}
}

// startRunner starts the probes and periodic instructions of a plan. After an apply all start from nothing; otherwise they go on from what
// was reported.
func (e *Engine) startRunner(id source.PlanID, plan plans.Plan, applied bool) *runner {
	ctx, cancel := context.WithCancel(context.Background())
	periodics, cancelPeriodics := context.WithCancel(ctx)
	r := &runner{plan: id, cancel: cancel, cancelPeriodics: cancelPeriodics, firstResults: make(chan struct{}), engine: e,
		probeCount: len(plan.Probes), probes: map[string]plans.ProbeStatus{}, output: map[string]plans.PeriodicOutput{},
		reported: e.current.Status.ProbeStatuses}
	if e.periodicsCanceled() {
		r.endPeriodics()
	}
	r.setPaused(pauses(e.current.Interrupt))
	var probed, ran sync.WaitGroup
	period := e.current.Delivery.ProbePeriod
	if !applied && e.Name == HubName {
		r.certificates = reportedCertificates(e.current.Status)
	}
	if r.probeCount == 0 {
		r.report()
	}
	if applied || len(plan.PeriodicInstructions) == 0 {
		// Runs from before the plan was applied say nothing about it.
		e.reporter.Periodic(id, nil)
	}
	r.mu.Lock() // what is started waits until the maps hold everything that was reported
	defer r.mu.Unlock()
	for name, p := range plan.Probes {
		status, reported := e.current.Status.ProbeStatuses[name]
		reported = reported && !applied
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
	if e.Name == HubName {
		r.all.Go(func() { r.watchCertificates(ctx, plan) })
	}
	r.all.Go(func() {
		wait(ctx, &ran, firstPeriodicTimeout)
		wait(ctx, &probed, 0)
		close(r.firstResults)
		r.reportLost(ctx)
	})
	return r
}

// probe checks one endpoint until ctx is done, and reports when its status changes. delayed waits for the initial delay first; tried is
// called after the first check, or at the end.
func (r *runner) probe(ctx context.Context, name string, p plans.Probe, delayed bool, period time.Duration, tried func()) {
	tried = sync.OnceFunc(tried)
	defer tried()
	if delayed && retry.Sleep(ctx, plans.Seconds(p.InitialDelaySeconds)) != nil {
		return
	}
	for {
		seen, err := r.engine.check(ctx, p)
		if ctx.Err() != nil {
			return
		}
		r.recordProbe(name, p, seen, err)
		tried()
		if retry.Sleep(ctx, period) != nil {
			return
		}
	}
}

// recordProbe counts the result of one check.
func (r *runner) recordProbe(name string, p plans.Probe, seen probe.Certificates, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.probes[name]
	after := probe.Record(probe.Count(p, before, err == nil), seen)
	r.probes[name] = after
	all := maps.Clone(r.probes)
	r.engine.status.update(func(s *State) {
		s.Counters.ProbeChecks++
		if err != nil {
			s.Counters.ProbeFailures++
		}
		s.Probes = all
	})
	if known && after == before {
		return
	}
	if !known || after.Healthy != before.Healthy {
		r.engine.Log.Info("Probe changed", "probe", name, "healthy", after.Healthy, "error", err)
	}
	r.reportAll()
}

// wait waits for a group until ctx is done, and at most for timeout, where that is not 0.
func wait(ctx context.Context, group *sync.WaitGroup, timeout time.Duration) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
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
