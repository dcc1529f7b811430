package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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

// apply carries out one attempt, or the rest of one, and journals its outcome. It returns early when ctx is done; the attempt goes on
// after the next start.
func (e *Engine) apply(ctx context.Context, d decision) {
	fail := e.attempt(ctx, d)
	if ctx.Err() != nil {
		return
	}
	end := entry{Kind: kindEnd, Succeeded: fail == nil}
	if fail != nil {
		end.Final, end.Message = fail.final, fail.err.Error()
		e.Log.Warn("The attempt failed", "checksum", short(d.begin.Checksum), "attempt", d.begin.Attempt, "error", loggable(fail.err))
	}
	if err := e.journal.add(end); err != nil {
		// The process knows the outcome; after a crash the last instruction would run once more.
		e.Log.Error("The journal cannot be written", "error", err)
	}
}

func (e *Engine) attempt(ctx context.Context, d decision) *failure {
	if !d.resume {
		if err := e.journal.start(d.begin); err != nil {
			return &failure{err: err}
		}
	}
	plan, err := plans.Decode(e.current.Delivery.Plan)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		return &failure{err: err, final: true}
	}
	e.keepHistory(e.current.Delivery.Plan, d.begin.Checksum)
	stamp := workStamp(e.journal.record.Started)
	if err := e.cleanWork(stamp); err != nil {
		return &failure{err: fmt.Errorf("cleaning the work folder: %w", err)}
	}
	if !e.journal.record.FilesDone {
		for i, file := range plan.Files {
			if err := e.place(file); err != nil {
				return &failure{err: fmt.Errorf("files[%d]: %s: %w", i, file.Path, err)}
			}
			if ctx.Err() != nil {
				return &failure{err: ctx.Err()}
			}
		}
		if err := e.journal.add(entry{Kind: kindFiles}); err != nil {
			return &failure{err: err}
		}
	}
	for i := e.journal.record.Done; i < len(plan.Instructions); i++ {
		dir := filepath.Join(e.WorkDirectory, stamp, fmt.Sprintf("%s_%d", d.begin.Checksum, i))
		if err := e.instruct(ctx, plan.Instructions[i], i, dir); err != nil {
			return &failure{err: err}
		}
	}
	if !e.PreserveWorkDirectory {
		if err := e.Host.RemoveAll(filepath.Join(e.WorkDirectory, stamp)); err != nil {
			e.Log.Warn("The work folder cannot be removed", "error", err)
		}
	}
	return nil
}

// place brings one file or folder into its state.
func (e *Engine) place(file plans.File) error {
	if !filepath.IsAbs(file.Path) {
		return errors.New("the path is not absolute on this machine")
	}
	if file.Action == plans.ActionDelete {
		if file.Directory {
			return e.Host.RemoveAll(file.Path)
		}
		return e.Host.Remove(file.Path)
	}
	mode, err := file.Mode()
	if err != nil {
		return err
	}
	attrs := host.Attributes{Mode: mode, UID: file.UID, GID: file.GID}
	if file.Directory {
		return e.Host.MakeDir(file.Path, attrs)
	}
	content, err := base64.StdEncoding.DecodeString(file.Content)
	if err != nil {
		return fmt.Errorf("decoding content: %w", err)
	}
	return e.Host.WriteFile(file.Path, content, attrs)
}

// instruct runs one instruction and journals it before and after.
func (e *Engine) instruct(ctx context.Context, instruction plans.Instruction, index int, dir string) error {
	name := nameOf(instruction.CommonInstruction, "instructions", index)
	if err := e.journal.add(entry{Kind: kindStart, Index: index, Name: instruction.Name}); err != nil {
		return err
	}
	e.Host.Notify("STATUS=Running " + name)
	result, err := e.execute(ctx, instruction.CommonInstruction, dir, e.journal.record.Attempt, e.InstructionTimeout)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		err = e.judge(name, result)
	}
	done := entry{Kind: kindDone, Index: index, Name: instruction.Name}
	if instruction.SaveOutput && instruction.Name != "" {
		done.Saved, done.Output = true, result.Stdout
	}
	if err != nil {
		// Its output is reported; as the outcome follows, that needs no line of its own on the disk.
		if done.Saved {
			e.journal.record.Outputs[done.Name] = done.Output
		}
		return err
	}
	return e.journal.add(done)
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
	return err.Error()
}

// judge makes an error of a result that is no success.
func (e *Engine) judge(name string, result host.Result) error {
	const most = 2 << 10
	words := result.Stderr
	if len(words) == 0 {
		words = result.Stdout
	}
	words = words[max(len(words)-most, 0):]
	switch {
	case result.TimedOut:
		return &programError{fmt.Sprintf("%s: did not end within %s and was stopped", name, e.InstructionTimeout), words}
	case result.ExitCode != 0:
		return &programError{fmt.Sprintf("%s: exit code %d", name, result.ExitCode), words}
	}
	return nil
}

// workStamp names the folder of an attempt, so that one that goes on finds it again.
func workStamp(started time.Time) string {
	return started.UTC().Format("20060102-150405")
}

// cleanWork removes what earlier attempts left, and nothing that no attempt made.
func (e *Engine) cleanWork(keep string) error {
	if e.PreserveWorkDirectory {
		return nil
	}
	names, err := e.Host.ReadDir(e.WorkDirectory)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := time.Parse("20060102-150405", name); err != nil || name == keep {
			continue
		}
		if err := e.Host.RemoveAll(filepath.Join(e.WorkDirectory, name)); err != nil {
			return err
		}
	}
	return nil
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
