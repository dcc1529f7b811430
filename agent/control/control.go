// Package control is the local API of a running agent: JSON over HTTP on a unix socket for root. It shows the state of the engines, and
// triggers retries.
//
//	GET  /v1/status                   Status
//	GET  /v1/sources/{name}/plan      the plan as delivered, byte for byte
//	GET  /v1/sources/{name}/history   a list of journal.Attempt, the oldest first
//	POST /v1/sources/{name}/retry     {}
//
// Errors have a status other than 200 and an errorResponse.
package control

import (
	"errors"
	"time"

	"github.com/drover-dev/drover/agent/engine"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/upgrade"
)

// Engine is what is used of an *engine.Engine, which documents the methods.
type Engine interface {
	State() engine.State
	History() ([]journal.Attempt, error)
	Plan() []byte
	Retry() error
}

// Status is the state of the process and of its engines.
type Status struct {
	// Version is that of the agent.
	Version string `json:"version"`
	// PID is the process id.
	PID int `json:"pid"`
	// Started is when the process started.
	Started time.Time `json:"started"`
	// ConfigFile is the configuration file that the process has read.
	ConfigFile string `json:"configFile"`
	// StateDirectory is where the process keeps its journals.
	StateDirectory string `json:"stateDirectory"`
	// Upgrade is the last upgrade of the agent by the hub; nil if there was none.
	Upgrade *upgrade.Status `json:"upgrade,omitempty"`
	// Sources are the states of the engines: the hub's first, then by name.
	Sources []engine.State `json:"sources"`
}

// ErrNotRunning is wrapped by a Client's errors if nothing listens on the socket, or no longer does.
var ErrNotRunning = errors.New("no agent is listening")

// errorResponse is the body of a response with another status than 200.
type errorResponse struct {
	Error string `json:"error"`
}
