package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killGrace is how long programs may take to end after SIGTERM.
	killGrace = 10 * time.Second
	// drainGrace is how long output is waited for after the program has ended. A daemon that it left behind may hold the pipes open
	// for ever.
	drainGrace = time.Second
)

// Run implements Host. The program leads a process group of its own. When ctx or the timeout ends it, everything that it started gets
// SIGTERM, and SIGKILL ten seconds later; ctx's error comes back then. A program that could not be started is an error.
func (m Machine) Run(ctx context.Context, command Command) (Result, error) {
	if command.Spool != "" {
		return m.runSpooled(ctx, command)
	}
	return runBelow(ctx, command, newSinks(command.Progress))
}

// runBelow runs a program as a child of this process.
func runBelow(ctx context.Context, command Command, sinks *sinks) (Result, error) {
	none := Result{ExitCode: -1}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	path, err := lookPath(command)
	if err != nil {
		return none, err
	}
	cmd, streams, err := start(path, command, sinks)
	if err != nil {
		return none, err
	}
	var timeout <-chan time.Time
	if command.Timeout > 0 {
		timer := time.NewTimer(command.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var result Result
	var waitErr, ctxErr error
	select {
	case waitErr = <-ended:
	case <-timeout:
		result.TimedOut = true
		waitErr = endTree(cmd.Process.Pid, ended)
	case <-ctx.Done():
		ctxErr = ctx.Err()
		waitErr = endTree(cmd.Process.Pid, ended)
	}
	streams.drain(drainGrace)
	result.Stdout, result.Stderr = sinks.close()
	result.ExitCode = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if ctxErr == nil && waitErr != nil && !errors.As(waitErr, &exit) {
		return result, fmt.Errorf("waiting for %s: %w", command.Path, waitErr)
	}
	return result, ctxErr
}

// start starts the program and drains its output from then on.
func start(path string, command Command, sinks *sinks) (*exec.Cmd, *streams, error) {
	stdin, err := input(command.Stdin)
	if err != nil {
		return nil, nil, err
	}
	if stdin != nil {
		defer stdin.Close()
	}
	streams, err := openStreams()
	if err != nil {
		return nil, nil, err
	}
	cmd, err := fork(path, command, stdin, streams)
	streams.start(sinks)
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", command.Path, err)
	}
	return cmd, streams, nil
}

// fork tries again for a moment: a file that was just unpacked may still be open for writing in a process that another goroutine is
// forking right now.
func fork(path string, command Command, stdin *os.File, streams *streams) (*exec.Cmd, error) {
	for try := 0; ; try++ {
		cmd := &exec.Cmd{
			Path: path, Args: append([]string{command.Path}, command.Args...), Env: command.Env, Dir: command.Dir,
			Stdout: streams.stdout.writer, Stderr: streams.stderr.writer, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		if cmd.Env == nil {
			cmd.Env = []string{} // or the program would get ours
		}
		if stdin != nil {
			cmd.Stdin = stdin
		}
		err := withUsualOOMScore(cmd.Start)
		if !errors.Is(err, syscall.ETXTBSY) || try == 20 {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// input is a file in memory that holds the standard input, so that nobody has to write into a pipe while the program runs; nil is none.
func input(content []byte) (*os.File, error) {
	if content == nil {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making standard input: %w", err)
	}
	file := os.NewFile(uintptr(fd), "stdin")
	if _, err = file.Write(content); err == nil {
		_, err = file.Seek(0, 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("making standard input: %w", err)
	}
	return file, nil
}

// endTree ends a program and what it started: everyone may tidy up for a while.
func endTree(pid int, ended <-chan error) error {
	below := descendants(pid)
	signalTree(pid, below, syscall.SIGTERM)
	grace := time.After(killGrace)
	var err error
	select {
	case err = <-ended:
	case <-grace:
		signalTree(pid, append(below, descendants(pid)...), syscall.SIGKILL)
		return <-ended
	}
	// Nobody tells when orphans end.
	for !gone(pid, below) {
		select {
		case <-grace:
			signalTree(pid, below, syscall.SIGKILL)
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

// lookPath finds the program in the PATH it will run with, not in the agent's own.
func lookPath(command Command) (string, error) {
	if command.Path == "" {
		return "", errors.New("no command is named")
	}
	if strings.Contains(command.Path, "/") {
		if filepath.IsAbs(command.Path) {
			return command.Path, nil
		}
		return filepath.Join(command.Dir, command.Path), nil
	}
	search := ""
	for _, env := range command.Env {
		if value, found := strings.CutPrefix(env, "PATH="); found {
			search = value // the last one wins, as it does for the program
		}
	}
	for _, dir := range filepath.SplitList(search) {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(command.Dir, dir)
		}
		candidate := filepath.Join(dir, command.Path)
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s is not in the PATH %s: %w", command.Path, search, exec.ErrNotFound)
}
