package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// killGrace is how long a process group may take to end after SIGTERM.
	killGrace = 10 * time.Second
	// drainGrace is how long output is waited for after the program has ended. A daemon that it left behind may hold the pipes open
	// for ever.
	drainGrace = time.Second
)

// Run implements Host. The program leads a process group of its own. When ctx or the timeout ends it, the whole group gets SIGTERM, and
// SIGKILL ten seconds later; ctx's error comes back then. A program that could not be started is an error.
func (Machine) Run(ctx context.Context, command Command) (Result, error) {
	path, err := lookPath(command)
	if err != nil {
		return Result{ExitCode: -1}, err
	}
	stdout, stderr, err := openStreams()
	if err != nil {
		return Result{ExitCode: -1}, err
	}
	cmd, err := start(path, command, stdout.writer, stderr.writer)
	stdout.start()
	stderr.start()
	if err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("starting %s: %w", command.Path, err)
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
		waitErr = endGroup(cmd.Process.Pid, ended)
	case <-ctx.Done():
		ctxErr = ctx.Err()
		waitErr = endGroup(cmd.Process.Pid, ended)
	}
	drained, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	result.Stdout, result.Stderr = stdout.collect(drained.Done()), stderr.collect(drained.Done())
	result.ExitCode = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if ctxErr == nil && waitErr != nil && !errors.As(waitErr, &exit) {
		return result, fmt.Errorf("waiting for %s: %w", command.Path, waitErr)
	}
	return result, ctxErr
}

// start starts the program. A file that was just unpacked may still be open for writing in a process that another goroutine is forking
// at this moment; that passes at once.
func start(path string, command Command, stdout, stderr *os.File) (*exec.Cmd, error) {
	for try := 0; ; try++ {
		cmd := &exec.Cmd{
			Path: path, Args: append([]string{command.Path}, command.Args...), Env: command.Env, Dir: command.Dir,
			Stdout: stdout, Stderr: stderr, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		err := cmd.Start()
		if !errors.Is(err, syscall.ETXTBSY) || try == 20 {
			return cmd, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// endGroup ends a process group: everyone in it may tidy up for a while.
func endGroup(pid int, ended <-chan error) error {
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	grace := time.After(killGrace)
	var err error
	select {
	case err = <-ended:
	case <-grace:
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		return <-ended
	}
	for !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
		select {
		case <-grace:
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	return err
}

// stream drains one output pipe for as long as anyone holds its other end, so that a daemon left behind neither blocks nor gets
// SIGPIPE while the agent lives.
type stream struct {
	reader, writer *os.File
	kept           output
	closed         chan struct{}
}

func openStreams() (*stream, *stream, error) {
	streams := [2]*stream{}
	for i := range streams {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("making a pipe: %w", err)
		}
		streams[i] = &stream{reader: r, writer: w, closed: make(chan struct{})}
	}
	return streams[0], streams[1], nil
}

// start drains the pipe; the program holds the other end by now.
func (s *stream) start() {
	s.writer.Close()
	go func() {
		defer close(s.closed)
		defer s.reader.Close()
		_, _ = io.Copy(&s.kept, s.reader)
	}()
}

func (s *stream) collect(deadline <-chan struct{}) []byte {
	select {
	case <-s.closed:
	case <-deadline:
	}
	return s.kept.Bytes()
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
