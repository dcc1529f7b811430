package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Result is what a command on a host left.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// enter is a command that runs inside the host whose first process is leader.
func enter(leader int, argv ...string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--"}, argv...)
}

var execCount atomic.Int64

// Exec runs a command on the host as a transient service, as root, and waits for it. A command that ran and failed is
// not an error: look at ExitCode. If ctx ends first, the service is killed with all its processes.
func (h *Host) Exec(ctx context.Context, argv ...string) (Result, error) {
	return h.ExecIO(ctx, nil, nil, argv...)
}

// Script runs a shell program on the host. It goes there through standard input, so nothing of it, such as a token, is
// in an argument list. What it prints also goes to output line by line, if output is not nil.
func (h *Host) Script(ctx context.Context, program string, output io.Writer) (Result, error) {
	return h.ExecIO(ctx, strings.NewReader(program), output, "bash", "-s")
}

// ExecIO is Exec with input, and with both outputs copied to output as they come.
func (h *Host) ExecIO(ctx context.Context, input io.Reader, output io.Writer, argv ...string) (Result, error) {
	leader := h.leader()
	if leader == 0 {
		return Result{}, fmt.Errorf("host %s is off", h.Name)
	}
	unit := fmt.Sprintf("lab-exec-%d-%d.service", os.Getpid(), execCount.Add(1))
	full := enter(leader, append([]string{"systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--unit=" + unit,
		"--setenv=HOME=/root", "--setenv=USER=root", "--"}, argv...)...)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = basicEnv
	cmd.Stdin = input
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if output != nil {
		shared := &serialWriter{to: output}
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, shared), io.MultiWriter(&errs, shared)
	}
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error {
		stop, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, _ = run(stop, enter(leader, "systemctl", "kill", "--signal=SIGKILL", unit)...)
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nsenter and its child
	}
	err := cmd.Run()
	res := Result{Stdout: out.String(), Stderr: errs.String(), ExitCode: cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		return res, fmt.Errorf("running %s on host %s: %w", argv[0], h.Name, context.Cause(ctx))
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.Exited() {
		return res, nil
	}
	if err != nil {
		return res, fmt.Errorf("running %s on host %s: %w", argv[0], h.Name, err)
	}
	return res, nil
}

// serialWriter passes writes on one at a time: the two outputs of a command come from two goroutines.
type serialWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *serialWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// Shell gives the caller's terminal to a shell on the host, or to a command there.
func (h *Host) Shell(ctx context.Context, argv ...string) error {
	leader := h.leader()
	if leader == 0 {
		return fmt.Errorf("host %s is off", h.Name)
	}
	if len(argv) == 0 {
		argv = []string{"bash", "-l"}
	}
	full := enter(leader, argv...)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Env = append([]string{"TERM=" + os.Getenv("TERM"), "USER=root"}, basicEnv...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// Logs writes the host's journal: of all units, or of those named. It works on a host that is off, too.
func (h *Host) Logs(ctx context.Context, w io.Writer, units ...string) error {
	args := []string{"--no-pager", "--output=short-iso-precise"}
	for _, u := range units {
		args = append(args, "--unit="+u)
	}
	full := append([]string{"journalctl", "--directory=" + h.root() + "/var/log/journal"}, args...)
	if leader := h.leader(); leader != 0 {
		full = enter(leader, append([]string{"journalctl"}, args...)...)
	}
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("reading the journal of host %s: %w", h.Name, err)
	}
	return nil
}

// Path is where a file of the host is on this machine, while the host exists.
func (h *Host) Path(inside string) string { return h.root() + inside }
