// Package control is how people and programs on the machine ask a running agent what it does: HTTP with JSON over a unix socket that
// only root may use. It shows what the engines tell and passes on a wish to try again; it reads no plan and touches nothing on the
// machine but its socket.
package control

import (
	"errors"
	"time"

	"github.com/drover-dev/drover/agent/engine"
)

// Agent is one engine, which applies the plans of one source. *engine.Engine is one.
type Agent interface {
	// State tells what it does and why.
	State() engine.State
	// History lists the attempts, the oldest first.
	History() ([]engine.Attempt, error)
	// Plan is the plan as it was delivered last, byte for byte; empty before the first.
	Plan() []byte
	// Retry lets it try again at once what it would try later or not at all, and says why it cannot.
	Retry() error
}

// Status is the answer about the whole process.
type Status struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// ConfigFile is the configuration that the process has read, StateDirectory where it keeps its journal.
	ConfigFile     string `json:"configFile"`
	StateDirectory string `json:"stateDirectory"`
	// Sources are the engines, the hub's first, then by name.
	Sources []engine.State `json:"sources"`
}

// ErrNotRunning is returned by a Client whose socket nobody answers.
var ErrNotRunning = errors.New("no agent answers")

// failure is the body of an answer that is no success.
type failure struct {
	Error string `json:"error"`
}
