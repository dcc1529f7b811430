package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/drover-dev/drover/agent/engine/filestate"
	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/plans"
)

// maxErrorOutput is how much of a failed program's output its error holds, from the end, in bytes.
const maxErrorOutput = 2 << 10

// runInstruction runs one instruction and journals it before and after. With resumeOnly it waits for one that an earlier process has
// started, and the error is errPaused if that does not run any more.
func (a *attempt) runInstruction(ctx context.Context, i int, resumeOnly bool) error {
	e, instruction, r := a.engine, a.plan.Instructions[i], a.engine.journal.Record()
	name := displayName(instruction.CommonInstruction, "instructions", i)
	started := r.InstructionsStarted == i+1
	if ready := resumeOnly || i == 0 && a.prepared || started && filestate.IsDir(e.Host, a.dir(i)); !ready {
		if started { // the program may have removed its folder: it runs, or has ended, all the same
			if err := a.runInstruction(ctx, i, true); !errors.Is(err, errPaused) {
				return err
			}
		}
		if err := a.stage(ctx, i, name); err != nil {
			return err
		}
		if err := a.flush(a.startEntry(i)); err != nil {
			return err
		}
	}
	if a.paused.Load() {
		a.journalPause() // the pause came before the start, for example during the pull, or before a restart of the agent
	}
	e.Notify()
	timeout := timeoutOf(instruction.CommonInstruction, e.InstructionTimeout)
	a.progress.Step(plans.PhaseRunning, i, len(a.plan.Instructions), instruction.Name)
	e.status.beginStep(PhaseApplying, "running "+name, timeout)
	result, err := e.runProgram(ctx, instruction.CommonInstruction, a.dir(i), r.Attempt, run.Command{
		Timeout: timeout, RunDir: e.runDirectory(r.AttemptID, i), Unit: e.unit(r.AttemptID, i), Progress: a.progress.Output,
		ResumeOnly: resumeOnly})
	if errors.Is(err, run.ErrNotRunning) {
		return errPaused
	}
	e.status.update(func(s *State) {
		if result.Resumed {
			s.Counters.InstructionsResumed++
		} else {
			s.Counters.InstructionsRun++
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			a.note(journal.Entry{Kind: journal.KindDone, Index: i, Name: instruction.Name, ExitCode: result.ExitCode})
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	done := journal.Entry{Kind: journal.KindDone, Index: i, Name: instruction.Name, ExitCode: result.ExitCode, TimedOut: result.TimedOut}
	if instruction.SaveOutput && instruction.Name != "" {
		done.Saved, done.Output = true, result.Stdout
	}
	a.note(done)
	if err := resultError(name, result, timeout); err != nil {
		return err
	}
	return a.flushBefore(i + 1)
}

// stage makes the folder of an instruction ready.
func (a *attempt) stage(ctx context.Context, i int, name string) error {
	e, instruction := a.engine, a.plan.Instructions[i].CommonInstruction
	if err := a.prepare(i); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if instruction.Image == "" {
		return nil
	}
	a.progress.Step(plans.PhasePulling, i, len(a.plan.Instructions), instruction.Name)
	e.status.beginStep(PhaseApplying, "pulling the image of "+name, 0)
	if err := e.pull(ctx, instruction, a.dir(i), a.progress.Pulled); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// The journal will say that the folder is ready. It must be, also after a power cut.
	if err := e.Host.Sync(a.dir(i)); err != nil {
		return fmt.Errorf("%s: syncing its image: %w", name, err)
	}
	return nil
}

// prepare recreates the folder of an instruction, with its script, and removes the run directory of an older run of the same name.
func (a *attempt) prepare(i int) error {
	e := a.engine
	if err := e.Host.RemoveAll(e.runDirectory(a.decision.attempt, i)); err != nil {
		return err
	}
	return e.prepare(a.plan.Instructions[i].CommonInstruction, a.dir(i))
}

func (a *attempt) startEntry(i int) journal.Entry {
	return journal.Entry{Kind: journal.KindStart, Index: i, Name: a.plan.Instructions[i].Name,
		RunDir: a.engine.runDirectory(a.decision.attempt, i)}
}

// dir is the folder in which an instruction runs.
func (a *attempt) dir(i int) string {
	return filepath.Join(a.engine.WorkDirectory, a.workName, fmt.Sprintf("%s_%d", a.decision.attempt.Checksum, i))
}

// outputError is a failure with the output of a program in its message. The message goes to the hub, for those who must find the cause; the
// summary leaves the output out, since that may hold secrets, and goes into logs and the history.
type outputError struct {
	message, summary string
}

func (e *outputError) Error() string { return e.message }

// withoutOutput is the message of an error without the output of programs.
func withoutOutput(err error) string {
	if program, ok := errors.AsType[*outputError](err); ok {
		return program.summary
	}
	return err.Error()
}

// resultError makes an error of a result that is no success.
func resultError(name string, result run.Result, timeout time.Duration) error {
	var summary string
	switch {
	case result.TimedOut:
		summary = fmt.Sprintf("%s: timed out after %s", name, timeout)
	case result.ExitCode != 0:
		summary = fmt.Sprintf("%s: exit code %d", name, result.ExitCode)
	default:
		return nil
	}
	output := result.Stderr
	if len(output) == 0 {
		output = result.Stdout
	}
	output = output[max(len(output)-maxErrorOutput, 0):]
	return &outputError{message: fmt.Sprintf("%s; last output:\n%s", summary, output), summary: summary}
}

// displayName names an instruction in messages: its place in the plan, with its name where it has one.
func displayName(instruction plans.CommonInstruction, list string, index int) string {
	if instruction.Name == "" {
		return fmt.Sprintf("%s[%d]", list, index)
	}
	return fmt.Sprintf("%s[%d] (%s)", list, index, instruction.Name)
}
