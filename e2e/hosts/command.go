package hosts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// run runs a command to its end and returns what it printed; a failure carries the last line of its error output.
func run(ctx context.Context, argv ...string) (string, error) {
	return runTo(ctx, nil, argv...)
}

// runInput is run with something on standard input.
func runInput(ctx context.Context, input string, argv ...string) (string, error) {
	return runWith(ctx, strings.NewReader(input), nil, argv...)
}

// runTo is run with each line of output also given to line. The command gets a process group of its own, which is
// killed as a whole when ctx ends, so that no helper of it goes on alone; and it dies with this process, so that it makes
// nothing any more when Down is called after a kill.
func runTo(ctx context.Context, line func(string), argv ...string) (string, error) {
	return runWith(ctx, nil, line, argv...)
}

func runWith(ctx context.Context, input io.Reader, line func(string), argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel means the thread that started it
	defer runtime.UnlockOSThread()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &errs
	if line != nil {
		w := &lineWriter{line: line, also: &out}
		cmd.Stdout, cmd.Stderr = w, w
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("running %s: %w", argv[0], context.Cause(ctx))
	}
	if err != nil {
		said := lastLine(errs.String())
		if said == "" {
			said = lastLine(out.String())
		}
		return out.String(), fmt.Errorf("running %s: %w: %s", strings.Join(argv, " "), err, said)
	}
	return out.String(), nil
}

// lineWriter hands on whole lines as they come; also keeps all of it.
type lineWriter struct {
	line func(string)
	also *bytes.Buffer
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.also.Write(p)
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		w.line(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
