package engine

import (
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/source"
	"github.com/drover-dev/drover/plans"
)

// State is what an engine is doing and why, for people and for metrics. It holds no content of plans and no output. The names in JSON are
// the wire format of the control socket and of `status -o json`.
type State struct {
	// Source is "hub", or the name of a local plan.
	Source string `json:"source"`
	// Machine is the name that the plan is for: "namespace/name" of the plan Secret; empty for a local plan.
	Machine string `json:"machine,omitempty"`
	// Checksum is that of the plan that was delivered last; empty before the first.
	Checksum string `json:"checksum,omitempty"`
	// PlanState is plan-state as the source has it; empty in the checksum protocol.
	PlanState plans.State `json:"planState,omitempty"`
	// Revision is plan-revision as the source has it.
	Revision int `json:"revision,omitempty"`
	// Phase is what happens at the moment.
	Phase Phase `json:"doing"`
	// Reason is why, as a phrase for people.
	Reason string `json:"reason,omitempty"`
	// NextTry is when the engine decides again; zero when it waits for a change.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Progress is set while a plan is applied.
	Progress *plans.Progress `json:"progress,omitempty"`
	// Last is the attempt that ended last, or the one that is going on; nil before the first.
	Last *journal.Attempt `json:"last,omitempty"`
	// Unreported is set while the hub does not know the outcome of Last.
	Unreported bool `json:"unreported,omitempty"`
	// Contacted is set once the source has answered.
	Contacted bool `json:"contacted"`
	// SourceError is why the source cannot be reached; empty when it can.
	SourceError string `json:"sourceError,omitempty"`
	// SourceErrorSince is since when; zero when it can be reached.
	SourceErrorSince time.Time `json:"sourceErrorSince,omitzero"`

	// Probes are the probes of the plan, by name.
	Probes map[string]plans.ProbeStatus `json:"probes,omitempty"`
	// Periodic are the periodic instructions of the plan, by name.
	Periodic map[string]Periodic `json:"periodic,omitempty"`
	// Counters count since the agent started.
	Counters Counters `json:"counters"`
	// Connections are those of a source that talks to a hub; nil of any other.
	Connections *source.Connections `json:"connections,omitempty"`
}

// Phase is what an engine is doing.
type Phase string

// The phases. Their values are labels of metrics.
const (
	PhaseIdle     Phase = "idle"     // nothing to apply; probes and periodic instructions run
	PhaseApplying Phase = "applying" // an attempt is going on
	PhaseWaiting  Phase = "waiting"  // for a time, another plan, an interlock, or the hub
	PhasePaused   Phase = "paused"   // by the hub
	PhaseCanceled Phase = "canceled" // by the hub
	PhaseRefusing Phase = "refusing" // a signature or an annotation forbids execution
)

// Periodic is the state of a periodic instruction.
type Periodic struct {
	// ExitCode is that of the last run.
	ExitCode int `json:"exitCode"`
	// Failures counts failures in a row.
	Failures int `json:"failures"`
	// LastSuccess is when the last run that succeeded began; zero means never.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// LastFailure is when the last run that failed began; zero after a success.
	LastFailure time.Time `json:"lastFailure,omitzero"`
	// Next is when it runs again; zero while Running.
	Next time.Time `json:"next,omitzero"`
	// Running says that it runs at the moment.
	Running bool `json:"running,omitempty"`
}

// Counters count since the agent started.
type Counters struct {
	// AttemptsSucceeded counts attempts that succeeded.
	AttemptsSucceeded int64 `json:"attemptsSucceeded"`
	// AttemptsFailed counts attempts that failed or were canceled.
	AttemptsFailed int64 `json:"attemptsFailed"`
	// InstructionsRun counts instructions that were started.
	InstructionsRun int64 `json:"instructionsRun"`
	// InstructionsResumed counts instructions that an earlier process had started.
	InstructionsResumed int64 `json:"instructionsResumed"`
	// ReportsSent counts reports that the source has taken.
	ReportsSent int64 `json:"reportsSent"`
	// ReportsFailed counts reports that could not be written.
	ReportsFailed int64 `json:"reportsFailed"`
	// PeriodicRuns counts all runs of periodic instructions.
	PeriodicRuns int64 `json:"periodicRuns"`
	// PeriodicFailures counts runs of periodic instructions that failed.
	PeriodicFailures int64 `json:"periodicFailures"`
	// ProbeChecks counts all checks of probes.
	ProbeChecks int64 `json:"probeChecks"`
	// ProbeFailures counts checks of probes that failed.
	ProbeFailures int64 `json:"probeFailures"`
	// AttemptSecondsTotal is how long all ended attempts took.
	AttemptSecondsTotal float64 `json:"attemptSecondsTotal"`
}
