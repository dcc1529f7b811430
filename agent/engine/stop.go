package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/run"
)

// StopProgram terminates the instruction that the engine of the source of that name has left running when its process ended. dir is the
// state directory of the engine, which must not run any more. It starts nothing, and changes nothing where nothing runs. The error wraps
// run.ErrStillRunning if something survived.
func StopProgram(h host.Host, source, dir string) error {
	raw, err := h.ReadFile(filepath.Join(dir, journal.FileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := journal.Read(raw)
	if err != nil {
		return fmt.Errorf("decoding the journal in %s: %w", dir, err)
	}
	if !r.Unfinished() || r.InstructionsStarted <= r.InstructionsDone {
		return nil
	}
	e := &Engine{Options: Options{Name: source, Host: h, StateDirectory: dir}}
	return e.stopProgram(r)
}

// stopProgram terminates the instruction that was started last for an attempt, if it still runs.
func (e *Engine) stopProgram(r journal.Record) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	last := r.InstructionsStarted - 1
	result, err := e.Host.Run(ctx, run.Command{RunDir: e.runDirectory(r.AttemptID, last), Unit: e.unit(r.AttemptID, last), ResumeOnly: true})
	if err == nil || errors.Is(err, run.ErrNotRunning) || result.Resumed && !errors.Is(err, run.ErrStillRunning) {
		return nil // it has ended, or did not run
	}
	return fmt.Errorf("stopping instructions[%d]: %w", last, err)
}
