package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/plans"
)

const (
	envExecutionDir  = "CATTLE_AGENT_EXECUTION_PWD"
	envAttempt       = "CATTLE_AGENT_ATTEMPT_NUMBER"
	defaultPath      = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultCommand   = "run.sh"
	defaultInterpret = "#!/bin/sh\n"
)

// notInherited are variables by which the service manager speaks to the agent alone.
var notInherited = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
	"JOURNAL_STREAM", "INVOCATION_ID", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE"}

// execute runs an instruction in a new folder, into which its image is unpacked first.
func (e *Engine) execute(ctx context.Context, instruction plans.CommonInstruction, dir string, attempt int, timeout time.Duration) (host.Result, error) {
	none := host.Result{ExitCode: -1}
	if err := e.Host.RemoveAll(dir); err != nil {
		return none, err
	}
	if err := e.Host.MakeDir(dir, host.Private(0o755)); err != nil {
		return none, err
	}
	if instruction.Image != "" {
		started := time.Now()
		if err := e.Images.Stage(ctx, instruction.Image, dir, nil); err != nil {
			return none, fmt.Errorf("staging image %s: %w", instruction.Image, err)
		}
		e.Log.Info("Image staged", "image", instruction.Image, "duration", time.Since(started).Round(time.Millisecond))
	}
	path, err := e.program(instruction, dir)
	if err != nil {
		return none, err
	}
	started := time.Now()
	e.Log.Info("Instruction starts", "instruction", instruction.Name, "attempt", attempt)
	result, err := e.Host.Run(ctx, host.Command{
		Path: path, Args: instruction.Args, Dir: dir, Timeout: timeout,
		Env: environment(e.Environment, instruction.Env, dir, attempt),
	})
	e.Log.Info("Instruction ended", "instruction", instruction.Name, "exitCode", result.ExitCode, "timedOut", result.TimedOut,
		"duration", time.Since(started).Round(time.Millisecond))
	return result, err
}

// program is what to run: the script, the command, or run.sh of the execution folder.
func (e *Engine) program(instruction plans.CommonInstruction, dir string) (string, error) {
	if instruction.Script == "" {
		if instruction.Command == "" {
			return filepath.Join(dir, defaultCommand), nil
		}
		return instruction.Command, nil
	}
	script := instruction.Script
	if !strings.HasPrefix(script, "#!") {
		script = defaultInterpret + script
	}
	sum := sha256.Sum256([]byte(instruction.Script))
	path := filepath.Join(dir, "script-"+hex.EncodeToString(sum[:])+".sh")
	return path, e.Host.WriteFile(path, []byte(script), host.Private(0o700))
}

// environment is the agent's own, then the instruction's, then what the agent adds: where the instruction runs, which attempt it is,
// and the execution folder at the end of the PATH, whoever set that.
func environment(inherited, own []string, dir string, attempt int) []string {
	env := slices.DeleteFunc(slices.Clone(inherited), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(notInherited, name)
	})
	env = append(env, own...)
	path := defaultPath
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, "PATH="); found && value != "" {
			path = value
		}
	}
	return append(env, envExecutionDir+"="+dir, envAttempt+"="+strconv.Itoa(attempt), "PATH="+path+":"+dir)
}
