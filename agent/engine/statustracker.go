package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

const (
	// loopTimeout is how long the loop may be busy before it counts as hung; disks can be slow.
	loopTimeout = 10 * time.Minute
	// stepGrace is what a step may take beyond its own limit: to be stopped, and to be written down on a slow disk.
	stepGrace = 10 * time.Minute
)

// statusTracker is where the parts of an engine record what they do, for State, Plan and Alive. The zero value is ready to use.
type statusTracker struct {
	mu    sync.Mutex
	state State
	// journal has the last attempt; nil before it is opened.
	journal *journal.Journal
	plan    []byte
	// busySince is since when the loop is busy, zero while it waits. deadline is when the current step of an attempt must be over, zero
	// for never.
	busySince time.Time
	deadline  time.Time
	// applying is set while an attempt is going on.
	applying bool
}

// State is what the engine does at the moment.
func (e *Engine) State() State {
	t := &e.status
	t.mu.Lock()
	s, j := t.state, t.journal
	s.Probes, s.Periodic = maps.Clone(s.Probes), maps.Clone(s.Periodic)
	if s.Progress != nil {
		progress := *s.Progress
		s.Progress = &progress
	}
	t.mu.Unlock()
	s.Source = e.Name
	if s.Phase == "" {
		s.Phase, s.Reason = PhaseWaiting, "waiting for the source"
	}
	if j != nil {
		s.setLast(j.Record())
	}
	if src, can := e.Source.(source.Reachability); can {
		s.SourceError, s.SourceErrorSince = src.Unreachable()
	}
	if src, can := e.Source.(source.ConnectionCounter); can {
		connections := src.Connections()
		s.Connections = &connections
	}
	return s
}

// setLast sets what State says about the last attempt.
func (s *State) setLast(r journal.Record) {
	if r.Checksum != "" {
		last := journal.NewAttempt(s.Source, r)
		s.Last, s.Unreported = &last, r.Unreported()
	}
}

// Plan is the plan that was delivered last, as raw bytes; nil before the first.
func (e *Engine) Plan() []byte {
	e.status.mu.Lock()
	defer e.status.mu.Unlock()
	return e.status.plan
}

// Alive reports whether the engine still makes progress: its loop answers, and the current step of an attempt has not passed its deadline.
func (e *Engine) Alive(now time.Time) bool {
	t := &e.status
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.busySince.IsZero() && now.Sub(t.busySince) > loopTimeout {
		return false
	}
	return !t.applying || t.deadline.IsZero() || now.Before(t.deadline.Add(stepGrace))
}

// update calls do with the lock held.
func (t *statusTracker) update(do func(s *State)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(&t.state)
}

// loopBusy records since when the loop is busy; the zero time says that it waits.
func (t *statusTracker) loopBusy(since time.Time) { t.update(func(*State) { t.busySince = since }) }

// setPhase records a decision.
func (t *statusTracker) setPhase(snapshot source.Snapshot, phase Phase, reason string) {
	t.setSnapshot(snapshot)
	t.update(func(s *State) { s.Phase, s.Reason, s.NextTry = phase, reason, time.Time{} })
}

// setSnapshot records what the source holds.
func (t *statusTracker) setSnapshot(snapshot source.Snapshot) {
	t.update(func(s *State) {
		s.Machine, s.Checksum = snapshot.Machine, snapshot.Delivery.Checksum()
		s.PlanState, s.Revision = snapshot.Status.State, snapshot.Status.Revision
		t.plan = snapshot.Delivery.Plan
	})
}

// beginStep records what an attempt does, and how long it may take; 0 is no limit.
func (t *statusTracker) beginStep(phase Phase, reason string, limit time.Duration) {
	t.update(func(s *State) {
		t.applying, t.deadline = true, time.Time{}
		if limit > 0 {
			t.deadline = time.Now().Add(limit)
		}
		s.Phase, s.Reason = phase, reason
	})
}

func (t *statusTracker) setProgress(now *plans.Progress) {
	if now != nil {
		copied := *now
		now = &copied
	}
	t.update(func(s *State) { s.Progress = now })
}

func (t *statusTracker) sourceAnswered() {
	t.update(func(s *State) { s.Contacted, s.SourceError, s.SourceErrorSince = true, "", time.Time{} })
}

func (t *statusTracker) sourceFailed(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, run.ErrDetach) {
		return
	}
	t.update(func(s *State) {
		if s.SourceError == "" {
			s.SourceErrorSince = time.Now().UTC()
		}
		s.SourceError = err.Error()
	})
}

// ReportSent implements report.Observer.
func (t *statusTracker) ReportSent() {
	t.sourceAnswered()
	t.update(func(s *State) { s.Counters.ReportsSent++ })
}

// ReportFailed implements report.Observer.
func (t *statusTracker) ReportFailed(err error) {
	t.sourceFailed(err)
	t.update(func(s *State) { s.Counters.ReportsFailed++ })
}

// setPeriodic records the state of a periodic instruction; ran says that a run has just ended.
func (t *statusTracker) setPeriodic(name string, p Periodic, ran bool) {
	t.update(func(s *State) {
		all := maps.Clone(s.Periodic)
		if all == nil {
			all = map[string]Periodic{}
		}
		all[name] = p
		s.Periodic = all
		if ran {
			s.Counters.PeriodicRuns++
			if p.Failures > 0 {
				s.Counters.PeriodicFailures++
			}
		}
	})
}
