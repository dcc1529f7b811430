package report

import (
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// ErrorOutput is the name in failed-output under which the failure itself is reported, beside the outputs of instructions.
const ErrorOutput = "system-agent-error"

// Outcome is how an attempt ended.
//
// What it writes, by protocol and result; keys that are not named stay as they are. Nothing is written to a plan-state that is terminal or
// pending, unless an attempt that could not begin would have replaced it, or whose revision is another one.
//
//	                          plan-state   applied-    failed-        failure-count   success-count
//	                                       checksum    checksum
//	state, succeeded          succeeded    the plan's  ""             0               one more
//	state, not begun          in-progress  -           -              at least 1      0
//	state, failed, not final  -            -           -              with this try   0
//	state, failed, final      failed       -           the plan's     with this try   0
//	checksum, succeeded       -            the plan's  ""             0               one more
//	checksum, failed          -            -           the plan's     with this try   0
//
// last-apply-time is when the attempt began, if it has; plan-progress goes.
type Outcome struct {
	// Record is the attempt, ended.
	Record journal.Record
	// ByState says that the delivery follows plan-state, else checksums.
	ByState bool
	// Final says that a failure is the last one of its delivery.
	Final bool
	// NotBegun says that the attempt could not begin, which uses up no try. It makes the same write each time.
	NotBegun bool
	// BeginFrom is the plan-state that such an attempt would have replaced with in-progress; empty if that was written before.
	BeginFrom plans.State
}

// Interruption says that a plan was paused or canceled, as the hub asked for.
type Interruption struct {
	// State is plans.StatePaused or plans.StateCanceled.
	State plans.State
	// Revision is the plan-revision that was interrupted; nothing is written to another one.
	Revision int
	// Checkpoint is how far the plan came.
	Checkpoint plans.Checkpoint
}

// part is a part of the status that is reported independently of outcomes and interruptions.
type part int

const (
	partProbes part = iota
	partPeriodic
	partProgress
)

// pending is what the source does not know yet. All of it is about one plan.
type pending struct {
	plan    source.PlanID
	outcome *Outcome
	// ready is closed when the outcome may be written; nil for at once.
	ready        <-chan struct{}
	interruption *Interruption
	// parts write what else is new into a status.
	parts map[part]func(s *plans.Status, trimLevel int)
}

func newPending(id source.PlanID) pending {
	return pending{plan: id, parts: map[part]func(*plans.Status, int){}}
}

func (p pending) empty() bool {
	return !p.urgent() && len(p.parts) == 0
}

// urgent says that the hub waits for the report.
func (p pending) urgent() bool {
	return p.outcome != nil || p.interruption != nil
}

// addOlder adds an older report where there is no newer one.
func (p *pending) addOlder(older pending) {
	if p.outcome == nil {
		p.outcome = older.outcome
	}
	if p.interruption == nil {
		p.interruption = older.interruption
	}
	for part, write := range older.parts {
		if _, newer := p.parts[part]; !newer && (part != partProgress || p.outcome == nil) {
			p.parts[part] = write
		}
	}
}

// apply writes the report into a status. Outcome and interruption come last, since they remove the progress.
func (p pending) apply(s *plans.Status, trimLevel int) {
	for _, write := range p.parts {
		write(s, trimLevel)
	}
	if p.outcome != nil {
		p.outcome.apply(s, trimLevel)
	}
	if p.interruption != nil {
		p.interruption.apply(s)
	}
}

// Begin sets a plan in progress for an attempt.
func Begin(s *plans.Status, a journal.AttemptID) {
	s.State, s.Revision, s.Checkpoint, s.Progress = plans.StateInProgress, a.Revision, nil, nil
	if s.FailedChecksum != a.Checksum {
		// The failures of the previous plan say nothing about this one.
		s.FailedChecksum, s.FailureCount, s.FailedOutput = "", 0, nil
	}
}

// apply writes the outcome, unless the status is of another delivery by now.
func (o Outcome) apply(s *plans.Status, trimLevel int) {
	r := o.Record
	if o.BeginFrom != "" && s.State == o.BeginFrom {
		Begin(s, r.AttemptID)
	}
	if o.ByState != (s.State != "") || o.ByState && (s.State.Terminal() || s.State == plans.StatePending || s.Revision != r.Revision) {
		return
	}
	s.Progress = nil
	if o.NotBegun {
		s.FailedOutput = map[string][]byte{ErrorOutput: []byte(r.Message)}
		s.FailureCount, s.SuccessCount = max(s.FailureCount, 1), 0
		return
	}
	s.LastApplyTime = r.Started.UTC()
	if r.Succeeded {
		s.AppliedChecksum, s.FailedChecksum = r.Checksum, ""
		s.AppliedOutput, s.FailedOutput = trimOutputs(r.Outputs, trimLevel), nil
		s.FailureCount, s.SuccessCount = 0, r.SuccessesBefore+1
		s.Checkpoint = nil
		if o.ByState {
			s.State = plans.StateSucceeded
		}
		return
	}
	outputs := trimOutputs(r.Outputs, trimLevel)
	outputs[ErrorOutput] = []byte(r.Message)
	s.FailedOutput = outputs
	s.FailureCount, s.SuccessCount = r.FailuresBefore+r.Tries, 0
	// A hub takes the checksum for the final result; there is none while the agent still retries.
	if o.Final || !o.ByState {
		s.FailedChecksum = r.Checksum
	}
	if o.Final && o.ByState {
		s.State, s.Checkpoint = plans.StateFailed, nil
	}
}

// apply writes the interruption, unless the status is of another delivery, or over by now.
func (i Interruption) apply(s *plans.Status) {
	s.Progress = nil
	if s.State == "" || s.State.Terminal() || s.Revision != i.Revision {
		return
	}
	checkpoint := i.Checkpoint
	s.State, s.Checkpoint = i.State, &checkpoint
}

// What all outputs of one kind may take of the Secret's one mebibyte, which holds the plan twice besides. In bytes, before compression.
const (
	outputsBudget  = 256 << 10
	periodicBudget = 128 << 10
)

// trimOutputs shortens outputs so that together they stay within the budget, which each level makes eight times smaller. The result is
// never nil and may be changed.
func trimOutputs(outputs map[string][]byte, level int) map[string][]byte {
	share := (outputsBudget >> (3 * level)) / max(len(outputs), 1)
	trimmed := make(map[string][]byte, len(outputs)+1)
	for name, output := range outputs {
		trimmed[name] = run.Truncate(output, share)
	}
	return trimmed
}

func trimPeriodic(outputs map[string]plans.PeriodicOutput, level int) map[string]plans.PeriodicOutput {
	share := (periodicBudget >> (3 * level)) / max(2*len(outputs), 1)
	trimmed := make(map[string]plans.PeriodicOutput, len(outputs))
	for name, output := range outputs {
		output.Stdout, output.Stderr = run.Truncate(output.Stdout, share), run.Truncate(output.Stderr, share)
		trimmed[name] = output
	}
	return trimmed
}
