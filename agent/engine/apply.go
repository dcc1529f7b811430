package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

// failure is why an attempt failed.
type failure struct {
	err error
	// final tells that no other attempt can cure it.
	final bool
}

// attempt carries out the plan from the first step that is not done.
func (w *work) attempt(ctx context.Context) *failure {
	e := w.engine
	if w.invalid != nil {
		return &failure{err: w.invalid, final: true}
	}
	r := e.journal.now()
	if r.Undoing {
		return &failure{err: errors.New(r.Message), final: r.Final}
	}
	e.dropFormer()
	if err := e.cleanWork(w.stamp); err != nil {
		return failed(fmt.Errorf("cleaning the work folder: %w", err))
	}
	if err := w.files(ctx, r); err != nil {
		return failed(err)
	}
	for i := r.Done; i < len(w.plan.Instructions); i++ {
		running := w.adopted && i == r.Begun-1 // perhaps, and if so it must be ended
		if err := w.boundary(ctx); err != nil && !(running && w.toEnd(ctx)) {
			return failed(err)
		}
		if err := w.instruct(ctx, i); err != nil {
			return failed(err)
		}
	}
	return nil
}

// boundary is between two steps: here an attempt can be left so that it goes on later.
func (w *work) boundary(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case w.hold.Load():
		return errPaused
	}
	return nil
}

// note keeps lines for the journal until the next write, which must come before anything else is begun.
func (w *work) note(entries ...entry) {
	w.carry = append(w.carry, entries...)
}

func (w *work) flush(more ...entry) error {
	w.note(more...)
	entries := w.carry
	w.carry = nil
	if len(entries) == 0 {
		return nil
	}
	return w.engine.journal.add(entries...)
}

// end journals how the attempt ended. One that was only interrupted goes on later.
func (w *work) end(ctx context.Context, fail *failure) {
	e := w.engine
	left := fail != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errCanceled)
	if left || fail != nil && errors.Is(fail.err, errPaused) {
		if !left {
			w.note(entry{Kind: kindPause})
		}
		if err := w.flush(); err != nil {
			e.Log.Error("The journal cannot be written", "error", err)
		}
		e.Log.Info("The plan is left for now", "checksum", short(w.decision.begin.Checksum), "paused", !left)
		return
	}
	end := entry{Kind: kindEnd, Succeeded: fail == nil}
	switch {
	case fail == nil:
	case ctx.Err() != nil:
		end.Canceled, end.Incomplete = true, errors.Is(fail.err, host.ErrStillRunning)
		end.Message = errCanceled.Error()
		end.Summary = end.Message
	default:
		end.Final, end.Message, end.Summary = fail.final, fail.err.Error(), loggable(fail.err)
		if w.mustUndo(fail) {
			end.RolledBack, end.Message, end.Summary = w.undo(end)
		}
		e.Log.Warn("The attempt failed", "checksum", short(w.decision.begin.Checksum), "attempt", w.decision.begin.Attempt, "error", end.Summary)
	}
	if err := w.flush(end); err != nil {
		// The process knows the outcome; after a crash the last instruction is asked once more how it ended.
		e.Log.Error("The journal cannot be written", "error", err)
	}
	r := e.journal.now()
	e.board.attemptEnded(r)
	e.Host.Notify("STATUS=Plan " + short(r.Checksum) + " " + outcomeWord(r))
	e.Log.Info("Plan ended", "checksum", short(r.Checksum), "attempt", r.Attempt, "succeeded", r.Succeeded, "canceled", r.Canceled,
		"rolledBack", r.RolledBack, "duration", r.Ended.Sub(r.Started).Round(time.Millisecond))
}

// instruct runs one instruction and journals it before and after.
func (w *work) instruct(ctx context.Context, i int) error {
	e, instruction, r := w.engine, w.plan.Instructions[i], w.engine.journal.now()
	name := nameOf(instruction.CommonInstruction, "instructions", i)
	if ready := i == 0 && w.ready || r.Begun == i+1 && e.isDir(w.dir(i)); !ready {
		if err := w.stage(ctx, i, name); err != nil {
			return err
		}
		if err := w.flush(w.startEntry(i)); err != nil {
			return err
		}
	}
	e.Host.Notify("STATUS=Running " + name)
	timeout := timeoutOf(instruction.CommonInstruction, e.InstructionTimeout)
	w.progress.phase(plans.PhaseRunning, i, len(w.plan.Instructions), instruction.Name)
	e.board.step("running "+name, timeout)
	result, err := e.runProgram(ctx, instruction.CommonInstruction, w.dir(i), r.Attempt, host.Command{
		Timeout: timeout, Spool: e.spool(r.begin, i), Unit: e.unit(r.begin, i), Progress: w.progress.wrote})
	e.board.ran(result.Resumed)
	if err != nil {
		if ctx.Err() == nil {
			w.note(entry{Kind: kindDone, Index: i, Name: instruction.Name, Exit: result.ExitCode})
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	done := entry{Kind: kindDone, Index: i, Name: instruction.Name, Exit: result.ExitCode, Late: result.TimedOut}
	if instruction.SaveOutput && instruction.Name != "" {
		done.Saved, done.Output = true, result.Stdout
	}
	w.note(done)
	if err := judge(name, result, timeout); err != nil {
		return err
	}
	// What follows at once is written together with it; what takes time is not waited for.
	if next := i + 1; next < len(w.plan.Instructions) && w.plan.Instructions[next].Image != "" {
		return w.flush()
	}
	return nil
}

// stage makes the folder of an instruction ready.
func (w *work) stage(ctx context.Context, i int, name string) error {
	e, instruction := w.engine, w.plan.Instructions[i].CommonInstruction
	if err := w.prepare(ctx, i); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if instruction.Image == "" {
		return nil
	}
	w.progress.phase(plans.PhasePulling, i, len(w.plan.Instructions), instruction.Name)
	e.board.step("pulling the image of "+name, 0)
	if err := e.pull(ctx, instruction, w.dir(i), w.progress.pulled); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// The journal will say that the folder is ready. It must be, also after a power cut.
	if err := e.Host.Sync(w.dir(i)); err != nil {
		return fmt.Errorf("%s: syncing its image: %w", name, err)
	}
	return nil
}

// prepare makes the folder of an instruction anew, and its script, and removes the spool of an older run of the same name.
func (w *work) prepare(_ context.Context, i int) error {
	e := w.engine
	if err := e.Host.RemoveAll(e.spool(w.decision.begin, i)); err != nil {
		return err
	}
	return e.prepare(w.plan.Instructions[i].CommonInstruction, w.dir(i))
}

func (w *work) startEntry(i int) entry {
	return entry{Kind: kindStart, Index: i, Name: w.plan.Instructions[i].Name, Spool: w.engine.spool(w.decision.begin, i)}
}

// dir is the folder in which an instruction runs.
func (w *work) dir(i int) string {
	return filepath.Join(w.engine.WorkDirectory, w.stamp, fmt.Sprintf("%s_%d", w.decision.begin.Checksum, i))
}

func (e *Engine) isDir(path string) bool {
	info, err := e.Host.Lstat(path)
	return err == nil && info.Dir
}

// programError is a program that did not succeed. Its last words go to the hub, for those who must mend it, and never into a log, since
// they may hold secrets.
type programError struct {
	summary   string
	lastWords []byte
}

func (e *programError) Error() string {
	return fmt.Sprintf("%s; it said last:\n%s", e.summary, e.lastWords)
}

// loggable is an error without what programs said.
func loggable(err error) string {
	var program *programError
	if errors.As(err, &program) {
		return program.summary
	}
	text, _, _ := strings.Cut(err.Error(), "; it said last:\n")
	return text
}

// judge makes an error of a result that is no success.
func judge(name string, result host.Result, timeout time.Duration) error {
	const most = 2 << 10
	words := result.Stderr
	if len(words) == 0 {
		words = result.Stdout
	}
	words = words[max(len(words)-most, 0):]
	switch {
	case result.TimedOut:
		return &programError{fmt.Sprintf("%s: did not end within %s and was stopped", name, timeout), words}
	case result.ExitCode != 0:
		return &programError{fmt.Sprintf("%s: exit code %d", name, result.ExitCode), words}
	}
	return nil
}

func outcomeWord(r record) string {
	switch {
	case r.Succeeded:
		return "is applied"
	case r.Canceled:
		return "is canceled"
	}
	return "has failed"
}

// nameOf names an instruction in messages.
func nameOf(instruction plans.CommonInstruction, list string, index int) string {
	if instruction.Name == "" {
		return fmt.Sprintf("%s[%d]", list, index)
	}
	return fmt.Sprintf("%s[%d] (%s)", list, index, instruction.Name)
}

func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist)
}
