package run

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
	// killGrace is the time between SIGTERM and SIGKILL.
	killGrace = 10 * time.Second
	// drainGrace is how long output is read after the program has ended. A daemon that it left behind may hold the pipes open forever.
	drainGrace = time.Second
)

// runChild runs a program as a child of this process.
func runChild(ctx context.Context, command Command, writers *outputWriters) (Result, error) {
	if err := ctx.Err(); err != nil {
		return noResult, err
	}
	path, err := lookPath(command)
	if err != nil {
		return noResult, err
	}
	cmd, pipes, err := start(path, command, writers)
	if err != nil {
		return noResult, err
	}
	var timeout <-chan time.Time
	if command.Timeout > 0 {
		timer := time.NewTimer(command.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	var result Result
	var waitErr, ctxErr error
	select {
	case waitErr = <-exited:
	case <-timeout:
		result.TimedOut = true
		waitErr = terminate(cmd.Process.Pid, exited)
	case <-ctx.Done():
		ctxErr = ctx.Err()
		waitErr = terminate(cmd.Process.Pid, exited)
	}
	pipes.drain(drainGrace)
	result.Stdout, result.Stderr = writers.close()
	if errors.Is(waitErr, ErrStillRunning) {
		result.ExitCode = -1 // ProcessState is not known, and Wait still writes it
		return result, errors.Join(ctxErr, fmt.Errorf("terminating %s: %w", command.Path, waitErr))
	}
	result.ExitCode = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if ctxErr == nil && waitErr != nil && !errors.As(waitErr, &exit) {
		return result, fmt.Errorf("waiting for %s: %w", command.Path, waitErr)
	}
	return result, ctxErr
}

// start starts the program and copies its output to the writers from then on.
func start(path string, command Command, writers *outputWriters) (*exec.Cmd, *outputPipes, error) {
	stdin, err := stdinFile(command.Stdin)
	if err != nil {
		return nil, nil, err
	}
	if stdin != nil {
		defer stdin.Close()
	}
	pipes, err := openPipes()
	if err != nil {
		return nil, nil, err
	}
	cmd, err := startProcess(path, command, stdin, pipes)
	pipes.copyTo(writers)
	if err != nil {
		return nil, nil, fmt.Errorf("starting %s: %w", command.Path, withMountHint(path, err))
	}
	return cmd, pipes, nil
}

// withMountHint says which "permission denied" comes from the file system of a program, and not from its mode.
func withMountHint(path string, err error) error {
	var stat unix.Statfs_t
	if errors.Is(err, unix.EACCES) && unix.Statfs(path, &stat) == nil && stat.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%w: the file system is mounted with noexec", err)
	}
	return err
}

// startProcess retries ETXTBSY for a moment: a file that was just unpacked may still be open for writing in a process that another
// goroutine is forking right now (golang.org/issue/22315).
func startProcess(path string, command Command, stdin *os.File, pipes *outputPipes) (*exec.Cmd, error) {
	for try := 0; ; try++ {
		cmd := &exec.Cmd{
			Path: path, Args: append([]string{command.Path}, command.Args...), Env: command.Env, Dir: command.Dir,
			Stdout: pipes.stdout.writer, Stderr: pipes.stderr.writer, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		if cmd.Env == nil {
			cmd.Env = []string{} // nil would inherit the agent's
		}
		if stdin != nil {
			cmd.Stdin = stdin
		}
		err := withDefaultOOMScore(cmd.Start)
		if !errors.Is(err, syscall.ETXTBSY) || try == 20 {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stdinFile is a file in memory with the standard input, so that nobody has to feed a pipe while the program runs; nil for no input.
func stdinFile(content []byte) (*os.File, error) {
	if content == nil {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating standard input: %w", err)
	}
	file := os.NewFile(uintptr(fd), "stdin")
	if _, err = file.Write(content); err == nil {
		_, err = file.Seek(0, 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("creating standard input: %w", err)
	}
	return file, nil
}

// terminate ends a child, its process group and all descendants, and returns what exited delivers, or ErrStillRunning when the child
// survives: in uninterruptible sleep, for example on a dead NFS server, it may do so until the machine is restarted.
func terminate(pid int, exited <-chan error) error {
	below := descendants(pid)
	signalTree(pid, below, syscall.SIGTERM)
	grace := time.After(killGrace)
	var err error
	select {
	case err = <-exited:
	case <-grace:
		signalTree(pid, append(below, descendants(pid)...), syscall.SIGKILL)
		select {
		case err = <-exited:
			return err
		case <-time.After(killGrace):
			return ErrStillRunning
		}
	}
	// Orphans are not this process's children, so their end is only seen by polling.
	for !allExited(pid, below) {
		select {
		case <-grace:
			signalTree(pid, below, syscall.SIGKILL)
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

// lookPath finds the program in the PATH that it will run with, not in the agent's own.
func lookPath(command Command) (string, error) {
	if command.Path == "" {
		return "", errors.New("no command given")
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
