package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Attach runs a program for a person who waits for it: output goes to stdout and stderr as it comes. Timeout, RunDir, Unit and Progress
// of the command are ignored. When ctx ends, the program and its process group get SIGTERM, SIGKILL 10 s later, and ctx's error is
// returned. The exit code is -1 if a signal ended the program.
func Attach(ctx context.Context, command Command, stdout, stderr io.Writer) (int, error) {
	if command.Root != "" && !filepath.IsAbs(command.Path) {
		return -1, fmt.Errorf("running %s below %s: the path of the program must be absolute", command.Path, command.Root)
	}
	path, err := lookPath(command)
	if err != nil {
		return -1, err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = append([]string{command.Path}, command.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = command.Env, command.Dir, stdout, stderr
	if command.Stdin != nil {
		cmd.Stdin = bytes.NewReader(command.Stdin)
	}
	// Its own process group, so that Ctrl-C reaches it once, through ctx, and not twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: command.Root}
	cmd.WaitDelay = killGrace
	var kill *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		kill = time.AfterFunc(killGrace, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGTERM)
	}
	err = cmd.Run()
	if kill != nil {
		kill.Stop()
	}
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return -1, ctx.Err()
	case errors.As(err, &exited):
		return exited.ExitCode(), nil
	case err != nil:
		return -1, fmt.Errorf("running %s: %w", command.Path, err)
	}
	return 0, nil
}
