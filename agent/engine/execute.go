package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/host/systemd"
	"github.com/drover-dev/drover/plans"
)

// Names and defaults that instructions of Rancher's installer images rely on.
const (
	envExecutionDir = "CATTLE_AGENT_EXECUTION_PWD"
	envAttempt      = "CATTLE_AGENT_ATTEMPT_NUMBER"
	defaultPath     = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultCommand  = "run.sh"
	defaultShebang  = "#!/bin/sh\n"
)

// execute runs an instruction in a new folder, into which its image is unpacked first.
func (e *Engine) execute(ctx context.Context, instruction plans.CommonInstruction, dir string, attempt int,
	command run.Command) (run.Result, error) {
	none := run.Result{ExitCode: -1}
	if err := e.prepare(instruction, dir); err != nil {
		return none, err
	}
	if instruction.Image != "" {
		if err := e.pull(ctx, instruction, dir, nil); err != nil {
			return none, err
		}
	}
	return e.runProgram(ctx, instruction, dir, attempt, command)
}

// prepare recreates the folder of an instruction. One without an image is ready then.
func (e *Engine) prepare(instruction plans.CommonInstruction, dir string) error {
	if err := e.Host.RemoveAll(dir); err != nil {
		return err
	}
	if err := e.Host.MkdirAll(dir, fs.WithMode(0o755)); err != nil || instruction.Image != "" {
		return err
	}
	return e.writeScript(instruction, dir)
}

// writeScript comes after the image, so that nothing of that takes its place.
func (e *Engine) writeScript(instruction plans.CommonInstruction, dir string) error {
	script := instruction.Script
	if script == "" {
		return nil
	}
	if !strings.HasPrefix(script, "#!") {
		script = defaultShebang + script
	}
	return e.Host.WriteFile(program(instruction, dir), []byte(script), fs.WithMode(0o700))
}

// pull unpacks the image of an instruction into its folder.
func (e *Engine) pull(ctx context.Context, instruction plans.CommonInstruction, dir string, progress func(done, total int64)) error {
	started := time.Now()
	if err := e.Images.Stage(ctx, instruction.Image, dir, progress); err != nil {
		return fmt.Errorf("staging image %s: %w", instruction.Image, err)
	}
	e.Log.Info("Image staged", "image", instruction.Image, "duration", time.Since(started).Round(time.Millisecond))
	return e.writeScript(instruction, dir)
}

// runProgram runs the program of an instruction whose folder is ready.
func (e *Engine) runProgram(ctx context.Context, instruction plans.CommonInstruction, dir string, attempt int,
	command run.Command) (run.Result, error) {
	started := time.Now()
	e.Log.Info("Running instruction", "instruction", instruction.Name, "attempt", attempt)
	command.Path, command.Args, command.Dir = program(instruction, dir), instruction.Args, dir
	command.Env = environment(e.Environment, instruction.Env, dir, attempt)
	result, err := e.Host.Run(ctx, command)
	e.Log.Info("Instruction ended", "instruction", instruction.Name, "exitCode", result.ExitCode, "timedOut", result.TimedOut,
		"resumed", result.Resumed, "duration", time.Since(started).Round(time.Millisecond))
	return result, err
}

// timeoutOf is the plan's own limit, or the agent's.
func timeoutOf(instruction plans.CommonInstruction, fallback time.Duration) time.Duration {
	if instruction.TimeoutSeconds > 0 {
		return plans.Seconds(instruction.TimeoutSeconds)
	}
	return fallback
}

// program is what to run: the script, the command, or run.sh of the execution folder.
func program(instruction plans.CommonInstruction, dir string) string {
	switch {
	case instruction.Script != "":
		return filepath.Join(dir, "script-"+plans.Checksum([]byte(instruction.Script))+".sh")
	case instruction.Command == "":
		return filepath.Join(dir, defaultCommand)
	}
	return instruction.Command
}

// environment is the agent's own, then the instruction's, then what the agent adds: where the instruction runs, which attempt it is,
// and the execution folder at the end of the PATH, whoever set that.
func environment(inherited, own []string, dir string, attempt int) []string {
	env := append(systemd.InheritableEnvironment(inherited), own...)
	path := defaultPath
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, "PATH="); found && value != "" {
			path = value
		}
	}
	return append(env, envExecutionDir+"="+dir, envAttempt+"="+strconv.Itoa(attempt), "PATH="+path+":"+dir)
}
