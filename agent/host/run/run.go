// Package run runs programs: as children of the agent, or each in a transient unit of systemd, below a shim, so that it outlives the
// agent. It knows neither plans nor the hub. What it writes lies in the run directory of a program, see runDir.
package run

import (
	"context"
	"errors"
	"time"

	"github.com/drover-dev/drover/agent/host/systemd"
)

// Runner runs programs.
type Runner interface {
	// Run runs a program to its end. It leads a process group of its own. A non-zero exit code and a timeout are no error; a program that
	// could not be started is.
	//
	// With a RunDir the program runs at most once: if it has ended already, Run returns the recorded result, and if it still runs, Run
	// waits for it. When ctx ends with the cause ErrDetach, a program in a unit keeps running and Run returns ErrDetach. With any other
	// cause, Run terminates the program and everything that it started (SIGTERM, SIGKILL 10 s later) and returns ctx's error, joined with
	// ErrStillRunning if something survived. If ctx has ended already, nothing is started, but a program that still runs is terminated.
	// After a timeout, too, ErrStillRunning is returned if a program without a unit survived.
	Run(ctx context.Context, command Command) (Result, error)
}

// ErrDetach is the cause with which a context ends when the agent stops and programs in units are to keep running.
var ErrDetach = errors.New("agent stops and leaves its programs running")

// ErrStillRunning is wrapped by Run's error if processes of a program survived SIGKILL.
var ErrStillRunning = errors.New("the program could not be terminated")

// ErrNotRunning is returned by Run for a command with ResumeOnly whose program neither runs nor has ended.
var ErrNotRunning = errors.New("the program does not run")

// Command is a program to run.
type Command struct {
	// Path is looked up in the PATH of Env, as execvp(3) does; one that contains a slash is relative to Dir.
	Path string
	// Args are the arguments after the program's name.
	Args []string
	// Env is the whole environment, as NAME=value. The program inherits nothing of the agent's.
	Env []string
	// Dir is the working directory; empty means that of the agent.
	Dir string
	// Root is the root directory of the program, in which Path, which must be absolute, and Dir are; empty means that of the agent. Only
	// Attach supports it.
	Root string
	// Timeout is after how long the program and everything that it started are terminated; 0 means never.
	Timeout time.Duration
	// Stdin is the standard input; nil means /dev/null.
	Stdin []byte
	// RunDir is the directory, of this one run, for the output (up to some 64 MiB) and the result. It is created with mode 0700. Empty
	// keeps nothing, and the program does not outlive the agent.
	RunDir string
	// Unit is the name, without ".service", of the transient unit in which a program with a RunDir runs if systemd is there. Empty runs
	// it as a child of the agent.
	Unit string
	// ResumeOnly starts nothing: Run waits for a program with this RunDir that an earlier process has started, or returns its result.
	ResumeOnly bool
	// Progress is called with the number of bytes that the program has written so far, at most once a second, from another goroutine, and
	// never after Run has returned. It may be nil.
	Progress func(outputBytes int64)
}

// Result is how a program ended.
type Result struct {
	// ExitCode is -1 if a signal ended the program, or there is no result.
	ExitCode int
	// Stdout and Stderr are the output, shortened to MaxOutputBytes.
	Stdout []byte
	// Stderr is kept like Stdout.
	Stderr []byte
	// TimedOut is set if the program was terminated because of Timeout.
	TimedOut bool
	// Resumed is set if an earlier process of the agent had started the program.
	Resumed bool
}

// noResult is returned with an error.
var noResult = Result{ExitCode: -1}

// Exec is the Runner of the machine that the agent runs on.
type Exec struct {
	// units replaces systemd in tests.
	units unitManager
}

var _ Runner = Exec{}

// unitManager is what is used of systemd.Units, which documents the methods.
type unitManager interface {
	Start(ctx context.Context, unit string, argv []string) error
	Remove(unit string)
	ShuttingDown() bool
}

// unitManager is nil without systemd.
func (e Exec) unitManager() unitManager {
	if e.units != nil {
		return e.units
	}
	if !systemd.Running() {
		return nil
	}
	return systemd.Units{}
}

// Run implements Runner.
func (e Exec) Run(ctx context.Context, command Command) (Result, error) {
	if command.RunDir != "" {
		return e.runOnce(ctx, command)
	}
	return runChild(ctx, command, newOutputWriters(command.Progress))
}
