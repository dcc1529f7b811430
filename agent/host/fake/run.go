package fake

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/drover-dev/drover/agent/host"
)

// running is a program that has a spool, until it has ended.
type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// outcome is how a program ended that has a spool. That of one in a unit is synced.
type outcome struct {
	result host.Result
	err    error
	synced bool
}

// Run implements host.Host. The world may stop before the program starts, or just after it has ended and before anyone learns of it. What
// has ended with a spool is told again after that, and what runs in a unit goes on when the agent leaves it. A world that stops takes
// running programs with it.
func (h *Host) Run(ctx context.Context, command host.Command) (host.Result, error) {
	none := host.Result{ExitCode: -1}
	h.waitForDisk()
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return none, ErrStopped
	}
	spool := filepath.Clean(command.Spool)
	if command.Spool == "" {
		spool = ""
	}
	if told, found := h.ended[spool]; found {
		h.mu.Unlock()
		told.result.Resumed = true
		return told.result, told.err
	}
	if found := h.running[spool]; found != nil {
		h.mu.Unlock()
		result, err := h.wait(ctx, command, found)
		result.Resumed = true
		return result, err
	}
	if err := ctx.Err(); err != nil {
		h.mu.Unlock()
		return none, err
	}
	program, found := h.programs[filepath.Base(command.Path)]
	h.effects++
	here := h.effects == h.stopAt
	if here && !h.after {
		h.stop()
		h.mu.Unlock()
		return none, ErrStopped
	}
	if !found {
		h.mu.Unlock()
		return none, fmt.Errorf("%s is not a program of this machine: %w", command.Path, exec.ErrNotFound)
	}
	if command.Spool == "" {
		h.mu.Unlock()
		return h.execute(ctx, command, program, here)
	}
	h.makeSpool(spool)
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	run := &running{cancel: cancel, done: make(chan struct{})}
	h.running[spool] = run
	h.mu.Unlock()
	go func() {
		defer close(run.done)
		defer cancel(nil)
		_, _ = h.execute(own, command, program, here)
	}()
	return h.wait(ctx, command, run)
}

// wait waits for a program with a spool, or ends it.
func (h *Host) wait(ctx context.Context, command host.Command, run *running) (host.Result, error) {
	select {
	case <-run.done:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), host.ErrLeave) && command.Unit != "" {
			return host.Result{ExitCode: -1}, host.ErrLeave
		}
		run.cancel(context.Cause(ctx))
		<-run.done
		return host.Result{ExitCode: -1}, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return host.Result{ExitCode: -1}, ErrStopped
	}
	told, found := h.ended[filepath.Clean(command.Spool)]
	if !found {
		return host.Result{ExitCode: -1}, errors.New("the program ended without a result")
	}
	return told.result, told.err
}

// execute runs a program; here tells that the world is to stop just after it.
func (h *Host) execute(ctx context.Context, command host.Command, program Program, here bool) (host.Result, error) {
	inner := ctx
	if command.Timeout > 0 {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, command.Timeout)
		defer cancel()
	}
	if h.begun(command) {
		return host.Result{ExitCode: -1}, ErrStopped
	}
	result, err := program(inner, command)
	result.Stdout, result.Stderr = host.Shorten(result.Stdout), host.Shorten(result.Stderr)
	switch {
	case ctx.Err() != nil:
		result.ExitCode, err = -1, ctx.Err()
	case inner.Err() != nil:
		result.ExitCode, result.TimedOut, err = -1, true, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return host.Result{ExitCode: -1}, ErrStopped
	}
	if inner.Err() == nil {
		h.runs = append(h.runs, command)
	}
	if command.Spool != "" {
		spool := filepath.Clean(command.Spool)
		delete(h.running, spool)
		if ctx.Err() == nil {
			h.ended[spool] = outcome{result, err, command.Unit != ""}
		}
		if command.Unit != "" {
			h.syncSpool(spool)
		}
	}
	if here {
		h.stop()
		return host.Result{ExitCode: -1}, ErrStopped
	}
	return result, err
}

// OnRun calls do each time a program has begun; the world may be stopped in it.
func (h *Host) OnRun(do func(host.Command)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onRun = do
}

// begun tells whether the world has stopped just when a program had begun.
func (h *Host) begun(command host.Command) bool {
	h.mu.Lock()
	do := h.onRun
	h.mu.Unlock()
	if do != nil {
		do(command)
	}
	return h.Stopped()
}

// Running are the spools of programs that have not ended, sorted.
func (h *Host) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var spools []string
	for spool := range h.running {
		spools = append(spools, spool)
	}
	slices.Sort(spools)
	return spools
}

// makeSpool needs the lock. Nobody syncs a spool while its program runs.
func (h *Host) makeSpool(spool string) {
	for at := spool; !h.files[at].Dir; at = filepath.Dir(at) {
		h.files[at], h.unsynced[at] = File{Dir: true, Attrs: host.Attributes{Mode: 0o700}}, true
	}
}

// syncSpool needs the lock. It is what the shim does with a result.
func (h *Host) syncSpool(spool string) {
	for at := spool; at != "/"; at = filepath.Dir(at) {
		delete(h.unsynced, at)
	}
}
