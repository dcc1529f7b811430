// Package host combines what the agent may do to its machine: files (package fs), programs (package run), and systemd (package systemd).
// Nothing outside of this directory writes files, starts processes or talks to systemd. Package fake is a machine in memory for tests,
// and package hosttest the tests that both pass.
package host

import (
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/host/systemd"
)

// Host is a machine.
type Host interface {
	fs.FileSystem
	run.Runner
	// Notify sends a state in the syntax of sd_notify(3) to the service manager, if there is one.
	Notify(state string)
}

// Local is the Host that the agent runs on.
type Local struct {
	fs.OS
	run.Exec
}

var _ Host = Local{}

// Notify implements Host.
func (Local) Notify(state string) {
	systemd.Notify(state)
}
