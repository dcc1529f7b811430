package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

// process is a program with a run directory that has not ended.
type process struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// runResult is how a program with a run directory ended. That of a program in a unit is synced.
type runResult struct {
	result run.Result
	err    error
	synced bool
}

// noResult is returned with an error.
var noResult = run.Result{ExitCode: -1}

// Run implements run.Runner. The start of a program is a durable effect: StopAt cuts the power before the program starts, or just after
// it has ended and before anyone learns of it. A power cut ends running programs.
func (h *Host) Run(ctx context.Context, command run.Command) (run.Result, error) {
	h.waitForDisk()
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return noResult, ErrStopped
	}
	dir := runDir(command)
	if ended, found := h.results[dir]; found {
		h.mu.Unlock()
		ended.result.Resumed = true
		return ended.result, ended.err
	}
	if p := h.running[dir]; p != nil {
		h.mu.Unlock()
		result, err := h.wait(ctx, command, p)
		result.Resumed = true
		return result, err
	}
	err := ctx.Err()
	if command.ResumeOnly {
		err = run.ErrNotRunning
	}
	if err != nil {
		h.mu.Unlock()
		return noResult, err
	}
	program, found := h.programs[filepath.Base(command.Path)]
	h.effects++
	stopHere := h.effects == h.stopAt
	if stopHere && !h.stopAfter {
		h.stop()
		h.mu.Unlock()
		return noResult, ErrStopped
	}
	if !found {
		h.mu.Unlock()
		return noResult, fmt.Errorf("%s is not a program of this machine: %w", command.Path, exec.ErrNotFound)
	}
	if dir == "" {
		h.mu.Unlock()
		return h.execute(ctx, command, program, stopHere)
	}
	h.createRunDir(dir)
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p := &process{cancel: cancel, done: make(chan struct{})}
	h.running[dir] = p
	h.mu.Unlock()
	go func() {
		defer close(p.done)
		defer cancel(nil)
		_, _ = h.execute(own, command, program, stopHere)
	}()
	return h.wait(ctx, command, p)
}

// runDir is the clean path of the run directory, or empty.
func runDir(command run.Command) string {
	if command.RunDir == "" {
		return ""
	}
	return filepath.Clean(command.RunDir)
}

// wait waits for a program with a run directory, or terminates it.
func (h *Host) wait(ctx context.Context, command run.Command, p *process) (run.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), run.ErrDetach) && command.Unit != "" {
			return noResult, run.ErrDetach
		}
		p.cancel(context.Cause(ctx))
		<-p.done
		return noResult, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return noResult, ErrStopped
	}
	ended, found := h.results[runDir(command)]
	if !found {
		return noResult, errors.New("the program ended without a result")
	}
	return ended.result, ended.err
}

// execute runs a program to its end; with stopHere it cuts the power just after that.
func (h *Host) execute(ctx context.Context, command run.Command, program Program, stopHere bool) (run.Result, error) {
	inner := ctx
	if command.Timeout > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, command.Timeout)
		defer cancel()
	}
	h.mu.Lock()
	onRun := h.onRun
	h.mu.Unlock()
	if onRun != nil {
		onRun(command)
	}
	if h.Stopped() {
		return noResult, ErrStopped
	}
	result, err := program(inner, command)
	result.Stdout, result.Stderr = run.Truncate(result.Stdout, run.MaxOutputBytes), run.Truncate(result.Stderr, run.MaxOutputBytes)
	switch {
	case ctx.Err() != nil:
		result.ExitCode, err = -1, ctx.Err()
	case inner.Err() != nil:
		result.ExitCode, result.TimedOut, err = -1, true, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return noResult, ErrStopped
	}
	if inner.Err() == nil {
		h.runs = append(h.runs, command)
	}
	if dir := runDir(command); dir != "" {
		delete(h.running, dir)
		if ctx.Err() == nil {
			h.results[dir] = runResult{result, err, command.Unit != ""}
		}
		if command.Unit != "" {
			h.syncRunDir(dir)
		}
	}
	if stopHere {
		h.stop()
		return noResult, ErrStopped
	}
	return result, err
}

// OnRun sets a function that is called each time a program has started; it may cut the power. nil stops that.
func (h *Host) OnRun(do func(run.Command)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onRun = do
}

// Running are the run directories of programs that have not ended, sorted.
func (h *Host) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.running))
}

// createRunDir needs the lock. Nobody syncs a run directory while its program runs.
func (h *Host) createRunDir(dir string) {
	for at := dir; !h.files[at].Dir; at = filepath.Dir(at) {
		h.files[at], h.unsynced[at] = File{Dir: true, Attrs: fs.Attributes{Mode: 0o700}}, true
	}
}

// syncRunDir needs the lock. It is what the shim does after it has written a result.
func (h *Host) syncRunDir(dir string) {
	for at := dir; at != "/"; at = filepath.Dir(at) {
		delete(h.unsynced, at)
	}
}
