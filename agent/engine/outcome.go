package engine

import (
	"github.com/drover-dev/drover/plans"
)

// errorOutput is the name under which a failure itself is reported, beside the outputs of instructions.
const errorOutput = "system-agent-error"

// outcome is how an attempt ended.
type outcome struct {
	record record
	// byState tells that the delivery follows plan-state.
	byState bool
	// final tells that a failure is the last one of its delivery.
	final bool
}

// same tells whether the outcome is of this attempt.
func (o outcome) same(r record) bool {
	return o.record.begin == r.begin && o.record.Started.Equal(r.Started)
}

// interruption is how the hub's wish to pause or to cancel was followed.
type interruption struct {
	state      plans.State
	revision   int
	checkpoint plans.Checkpoint
}

// pending is what the source does not know yet. All of it is about one plan.
type pending struct {
	target       target
	outcome      *outcome
	hold         <-chan struct{}
	interruption *interruption
	probes       map[string]plans.ProbeStatus
	periodic     map[string]plans.PeriodicOutput
	progress     *plans.Progress
	// probed, ran and progressed tell that probes, periodic and progress are to be written, even where they are empty.
	probed, ran, progressed bool
}

func (p pending) empty() bool {
	return !p.urgent() && !p.probed && !p.ran && !p.progressed
}

// urgent tells that the news is waited for.
func (p pending) urgent() bool {
	return p.outcome != nil || p.interruption != nil
}

// addOlder adds what is older than what is there.
func (p *pending) addOlder(older pending) {
	if p.outcome == nil {
		p.outcome = older.outcome
	}
	if p.interruption == nil {
		p.interruption = older.interruption
	}
	if !p.probed {
		p.probes, p.probed = older.probes, older.probed
	}
	if !p.ran {
		p.periodic, p.ran = older.periodic, older.ran
	}
	if !p.progressed && p.outcome == nil {
		p.progress, p.progressed = older.progress, older.progressed
	}
}

// apply writes the news into a status.
func (p pending) apply(s *plans.Status, trimming int) {
	if p.progressed {
		s.Progress = p.progress
	}
	if p.outcome != nil {
		p.outcome.apply(s, trimming)
	}
	if p.interruption != nil {
		p.interruption.apply(s)
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
	if o.byState != (s.State != "") || o.byState && (terminal(s.State) || s.State == plans.StatePending || s.Revision != r.Revision) {
		return
	}
	s.LastApplyTime, s.Progress = r.Started.UTC(), nil
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
		s.State, s.Checkpoint = plans.StateFailed, nil
	}
}

// apply writes the interruption, unless the status is of another delivery, or over by now.
func (i interruption) apply(s *plans.Status) {
	s.Progress = nil
	if s.State == "" || terminal(s.State) || s.Revision != i.revision {
		return
	}
	checkpoint := i.checkpoint
	s.State, s.Checkpoint = i.state, &checkpoint
}
