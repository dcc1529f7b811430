package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

const (
	// loopTime is how long the loop may be busy before it counts as stuck; disks can be slow.
	loopTime = 10 * time.Minute
	// stepGrace is what a step may take beyond its own limit: to be ended, and to be written down on a disk that hangs.
	stepGrace = 10 * time.Minute
)

// board is where the parts of an engine write what they do, for those who ask. Its zero value may be used.
type board struct {
	mu    sync.Mutex
	state State
	// journal is where the last attempt stands.
	journal *journal
	plan    []byte
	// busySince is since when the loop does something, zero while it waits. deadline is when the current step of an attempt must be
	// over, zero for never.
	busySince time.Time
	deadline  time.Time
	running   bool
}

// State is what the engine does at the moment.
func (e *Engine) State() State {
	b := &e.board
	b.mu.Lock()
	s, j := b.state, b.journal
	s.Probes, s.Periodic = maps.Clone(s.Probes), maps.Clone(s.Periodic)
	if s.Progress != nil {
		progress := *s.Progress
		s.Progress = &progress
	}
	b.mu.Unlock()
	s.Source = e.Name
	if s.Doing == "" {
		s.Doing, s.Reason = DoingWait, "nothing has come from the source yet"
	}
	if j != nil {
		if r := j.now(); r.Checksum != "" {
			last := attemptOf(e.Name, r)
			s.Last = &last
			s.Unreported = !r.unfinished() && r.Reported.IsZero() && !r.Canceled
		}
	}
	if source, can := e.Source.(Reachability); can {
		s.SourceError, s.SourceErrorSince = source.Unreachable()
	}
	if source, can := e.Source.(Connecting); can {
		connections := source.Connections()
		s.Connections = &connections
	}
	return s
}

// Plan is the plan that was delivered last, as raw bytes; nil before the first.
func (e *Engine) Plan() []byte {
	e.board.mu.Lock()
	defer e.board.mu.Unlock()
	return e.board.plan
}

// Alive tells whether the engine still answers, or is inside a step whose own deadline has not passed.
func (e *Engine) Alive(now time.Time) bool {
	b := &e.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.busySince.IsZero() && now.Sub(b.busySince) > loopTime {
		return false
	}
	return !b.running || b.deadline.IsZero() || now.Before(b.deadline.Add(stepGrace))
}

func (b *board) change(do func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(&b.state)
}

func (b *board) open(j *journal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal = j
}

func (b *board) idle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busySince = time.Time{}
}

func (b *board) busy(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busySince = now
}

func (b *board) next(at time.Time) { b.change(func(s *State) { s.NextTry = at.UTC() }) }

// show notes a decision.
func (b *board) show(snapshot Snapshot, doing Doing, reason string) {
	b.follow(snapshot)
	b.change(func(s *State) { s.Doing, s.Reason, s.NextTry = doing, reason, time.Time{} })
}

// follow notes what the source holds.
func (b *board) follow(snapshot Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.state
	s.Machine, s.Checksum, s.PlanState, s.Revision = snapshot.Machine, snapshot.Delivery.Checksum(), snapshot.Status.State, snapshot.Status.Revision
	b.plan = snapshot.Delivery.Plan
}

// step notes that an attempt does something, and how long it may take; 0 is for as long as it likes.
func (b *board) step(what string, limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.deadline = true, time.Time{}
	if limit > 0 {
		b.deadline = time.Now().Add(limit)
	}
	b.state.Doing, b.state.Reason = DoingApply, what
}

// wait notes that an attempt waits for something that has no end of its own.
func (b *board) wait(reason string) {
	b.step(reason, 0)
	b.change(func(s *State) { s.Doing = DoingWait })
}

// over notes that no attempt goes on.
func (b *board) over() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.deadline, b.state.Progress = false, time.Time{}, nil
}

func (b *board) progressed(now *plans.Progress) {
	if now != nil {
		copied := *now
		now = &copied
	}
	b.change(func(s *State) { s.Progress = now })
}

func (b *board) sourceAnswered() {
	b.change(func(s *State) { s.Contacted, s.SourceError, s.SourceErrorSince = true, "", time.Time{} })
}

func (b *board) sourceFailed(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, host.ErrLeave) {
		return
	}
	b.change(func(s *State) {
		if s.SourceError == "" {
			s.SourceErrorSince = time.Now().UTC()
		}
		s.SourceError = err.Error()
	})
}

func (b *board) reportSent() {
	b.sourceAnswered()
	b.change(func(s *State) { s.Counters.ReportsSent++ })
}

func (b *board) reportFailed(err error) {
	b.sourceFailed(err)
	b.change(func(s *State) { s.Counters.ReportsFailed++ })
}

// ran counts the run of an instruction.
func (b *board) ran(resumed bool) {
	b.change(func(s *State) {
		if resumed {
			s.Counters.InstructionsResumed++
			return
		}
		s.Counters.InstructionsRun++
	})
}

func (b *board) attemptEnded(r record) {
	b.change(func(s *State) {
		if r.Succeeded {
			s.Counters.AttemptsSucceeded++
		} else {
			s.Counters.AttemptsFailed++
		}
		s.Counters.AttemptSecondsTotal += r.Ended.Sub(r.Started).Seconds()
	})
}

func (b *board) probed(healthy bool, all map[string]plans.ProbeStatus) {
	b.change(func(s *State) {
		s.Counters.ProbeChecks++
		if !healthy {
			s.Counters.ProbeFailures++
		}
		s.Probes = all
	})
}

// periodic notes how a periodic instruction stands.
func (b *board) periodic(name string, p Periodic, ran bool) {
	b.change(func(s *State) {
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

// forget drops what a former plan's probes and periodic instructions said.
func (b *board) forget() {
	b.change(func(s *State) { s.Probes, s.Periodic = nil, nil })
}

// doing is a decision in one word.
func (d decision) doing(s Snapshot) Doing {
	switch {
	case d.action == block:
		return DoingRefuse
	case d.action == pause:
		return DoingPaused
	case d.action == cancel, s.Interrupt.Canceled, s.Status.State == plans.StateCanceled, s.Status.State == plans.StateCancelled:
		return DoingCanceled
	case d.action == apply:
		return DoingApply
	case d.wait > 0:
		return DoingWait
	}
	return DoingNothing
}
