// Package host combines what the agent may do to its machine: files (package fs), programs (package run), and systemd (package systemd).
// Nothing outside of this directory writes files, starts processes or talks to systemd. Package testenv/fake is a machine in memory
// for tests, and package testenv/hosttest the tests that both pass.
package host

import (
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

// Host is a machine.
type Host interface {
	fs.FileSystem
	run.Runner
}

// Local is the Host that the agent runs on.
type Local struct {
	fs.OS
	run.Exec
}

var _ Host = Local{}
