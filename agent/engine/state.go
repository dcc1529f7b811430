package engine

import (
	"time"

	"github.com/drover-dev/drover/plans"
)

// State is what an engine is doing and why, for people and for metrics. It holds no content of plans and no output.
type State struct {
	// Source is "hub", or the name of a local plan.
	Source string `json:"source"`
	// Machine is the name that the plan is for: "namespace/name" of the plan Secret; empty for a local plan.
	Machine string `json:"machine,omitempty"`
	// Checksum, PlanState and Revision are of the plan that was delivered last; empty before the first.
	Checksum  string      `json:"checksum,omitempty"`
	PlanState plans.State `json:"planState,omitempty"`
	Revision  int         `json:"revision,omitempty"`
	// Doing is what happens at the moment, and Reason why, in words for people.
	Doing  Doing  `json:"doing"`
	Reason string `json:"reason,omitempty"`
	// NextTry is when it looks again by itself; zero when it waits for a change.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Progress is set while a plan is applied.
	Progress *plans.Progress `json:"progress,omitempty"`
	// Last is the attempt that ended last, or the one that is going on; nil before the first.
	Last *Attempt `json:"last,omitempty"`
	// Unreported is set while the hub does not know the outcome of Last.
	Unreported bool `json:"unreported,omitempty"`
	// Contacted is set once the source has told what it holds.
	Contacted bool `json:"contacted"`
	// SourceError is why the source cannot be reached, since SourceErrorSince; empty when it can.
	SourceError      string    `json:"sourceError,omitempty"`
	SourceErrorSince time.Time `json:"sourceErrorSince,omitzero"`

	Probes   map[string]plans.ProbeStatus `json:"probes,omitempty"`
	Periodic map[string]Periodic          `json:"periodic,omitempty"`
	Counters Counters                     `json:"counters"`
	// Connections are those of a source that talks to a hub; nil of any other.
	Connections *Connections `json:"connections,omitempty"`
}

// Doing is what an engine does.
type Doing string

const (
	DoingNothing  Doing = "idle"
	DoingApply    Doing = "applying"
	DoingWait     Doing = "waiting" // for a time, another plan, an interlock, or the hub
	DoingPaused   Doing = "paused"
	DoingCanceled Doing = "canceled"
	DoingRefuse   Doing = "refusing" // a signature or an annotation forbids to execute
)

// Attempt is one attempt at a plan. The history keeps one line for each, as JSON.
type Attempt struct {
	Source   string `json:"source"`
	Checksum string `json:"checksum"`
	Revision int    `json:"revision,omitempty"`
	// Number is the attempt number that instructions see, Try counts within one delivery.
	Number  int       `json:"attempt"`
	Try     int       `json:"try"`
	Started time.Time `json:"started"`
	// Ended is zero while it goes on.
	Ended     time.Time `json:"ended,omitzero"`
	Succeeded bool      `json:"succeeded"`
	// RolledBack is set when the files of a failed attempt were put back.
	RolledBack bool `json:"rolledBack,omitempty"`
	// Interrupted counts how often the attempt went on after the agent had stopped.
	Interrupted int `json:"interrupted,omitempty"`
	// Message is why it failed, without what programs said.
	Message string `json:"message,omitempty"`
	// Instructions are those that were begun, in their order.
	Instructions []InstructionRun `json:"instructions,omitempty"`
}

// InstructionRun is one run of an instruction.
type InstructionRun struct {
	Index    int       `json:"index"`
	Name     string    `json:"name,omitempty"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exitCode"`
	TimedOut bool      `json:"timedOut,omitempty"`
	// Spool is the folder that keeps its whole output.
	Spool string `json:"spool,omitempty"`
}

// Periodic is the state of a periodic instruction.
type Periodic struct {
	ExitCode    int       `json:"exitCode"`
	Failures    int       `json:"failures"`
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
	Next        time.Time `json:"next,omitzero"`
	Running     bool      `json:"running,omitempty"`
}

// Counters count since the agent started.
type Counters struct {
	AttemptsSucceeded   int64   `json:"attemptsSucceeded"`
	AttemptsFailed      int64   `json:"attemptsFailed"`
	InstructionsRun     int64   `json:"instructionsRun"`
	InstructionsResumed int64   `json:"instructionsResumed"`
	ReportsSent         int64   `json:"reportsSent"`
	ReportsFailed       int64   `json:"reportsFailed"`
	PeriodicRuns        int64   `json:"periodicRuns"`
	PeriodicFailures    int64   `json:"periodicFailures"`
	ProbeChecks         int64   `json:"probeChecks"`
	ProbeFailures       int64   `json:"probeFailures"`
	AttemptSecondsTotal float64 `json:"attemptSecondsTotal"`
}
