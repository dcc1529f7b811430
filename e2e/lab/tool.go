package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// runTool runs a program of the repository with the caller's environment and reports each line it prints.
func (l *Lab) runTool(ctx context.Context, argv ...string) error {
	return l.runReporting(ctx, exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// runInLab runs a program in the lab's network and reports each line it prints. Its temporary files go with the lab, even
// if it is killed.
func (l *Lab) runInLab(ctx context.Context, argv ...string) error {
	tmp := filepath.Join(l.Dir, "tmp")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return err
	}
	cmd := l.Command(ctx, argv...)
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	return l.runReporting(ctx, cmd)
}

// runReporting runs cmd in a process group that ends as a whole with ctx; a failure carries its last words.
func (l *Lab) runReporting(ctx context.Context, cmd *exec.Cmd) error {
	lines := &reporter{report: l.report}
	cmd.Stdout, cmd.Stderr = lines, lines
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, lines.tail())
	}
	return nil
}

// reporter hands on whole lines and keeps the last few.
type reporter struct {
	report func(string)
	rest   []byte
	last   []string
}

func (r *reporter) Write(p []byte) (int, error) {
	r.rest = append(r.rest, p...)
	for {
		i := bytes.IndexAny(r.rest, "\r\n")
		if i < 0 {
			return len(p), nil
		}
		if line := strings.TrimSpace(string(r.rest[:i])); line != "" {
			r.last = append(r.last[max(0, len(r.last)-4):], line)
			r.report(line)
		}
		r.rest = r.rest[i+1:]
	}
}

// tail is the last line that names an error, or else the last line.
func (r *reporter) tail() string {
	lines := append(slices.Clip(r.last), strings.TrimSpace(string(r.rest)))
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(strings.ToLower(lines[i]), "error") {
			return lines[i]
		}
	}
	return strings.TrimSpace(strings.Join(lines, " "))
}

// Kubectl prepares a kubectl command in the lab's network, with the kubeconfig given. It is the user's kubectl, or the
// one in the test distribution.
func (l *Lab) Kubectl(ctx context.Context, kubeconfig string, args ...string) (*exec.Cmd, error) {
	argv := []string{"kubectl"}
	if path, err := exec.LookPath("kubectl"); err == nil {
		argv[0] = path
	} else {
		release, err := l.Distro(ctx, Version)
		if err != nil {
			return nil, fmt.Errorf("this machine has no kubectl, and the test distribution has none either: %w", err)
		}
		argv = []string{release + "/k3s", "kubectl"}
	}
	cmd := l.Command(ctx, append(argv, args...)...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "TERM="+os.Getenv("TERM"), "HOME="+l.Dir,
		"K3S_DATA_DIR="+filepath.Join(l.Dir, "kubectl")) // where the distribution unpacks itself
	return cmd, nil
}
