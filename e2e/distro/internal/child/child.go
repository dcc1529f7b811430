// Package child runs the components of a node as processes of their own. None of them outlives this process, and when one
// of them ends on its own the node ends too, so that systemd restarts it.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// Child is a program to run.
type Child struct {
	Name string
	// Path is the program; empty means this one.
	Path string
	Args []string
	Env  []string
	// Output gets what the program prints; nil means this process's standard error.
	Output io.Writer
	// Patience is how long it may take to end once told to; 0 means 20 s.
	Patience time.Duration
	// Farewell, if given, is called before the child is told to end.
	Farewell func()
	// Spared is asked when the child has ended on its own: if it says true, the node goes on without it. nil never does.
	Spared func(*os.ProcessState) bool
}

// Set is a group of running children.
type Set struct {
	log *slog.Logger

	mu       sync.Mutex
	stopping bool
	running  []*process
	failed   chan error
	spawn    chan func()
}

type process struct {
	Child
	cmd  *exec.Cmd
	done chan struct{}
}

// NewSet returns an empty group.
func NewSet(log *slog.Logger) *Set {
	s := &Set{log: log, failed: make(chan error, 16), spawn: make(chan func())}
	go func() {
		// The kernel ends a child when the thread that started it ends: this one lives as long as the process.
		runtime.LockOSThread()
		for f := range s.spawn {
			f()
		}
	}()
	return s
}

// Start runs a child.
func (s *Set) Start(c Child) error {
	path := c.Path
	if path == "" {
		path = "/proc/self/exe"
	}
	cmd := exec.Command(path, c.Args...)
	if c.Path == "" {
		cmd.Args[0] = flavour.Current.Program
	}
	cmd.Env = append(without(os.Environ(), "NOTIFY_SOCKET"), c.Env...)
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	if c.Output == nil {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errors.New("this node is stopping")
	}
	s.spawn <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", c.Name, err)
	}
	p := &process{Child: c, cmd: cmd, done: make(chan struct{})}
	s.running = append(s.running, p)
	s.log.Info("Started", "component", c.Name, "pid", cmd.Process.Pid)
	go s.watch(p)
	return nil
}

func (s *Set) watch(p *process) {
	err := p.cmd.Wait()
	close(p.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || p.Spared != nil && p.Spared(p.cmd.ProcessState) {
		return
	}
	s.failed <- fmt.Errorf("%s ended on its own: %v", p.Name, p.cmd.ProcessState)
	s.log.Error("A component ended on its own", "component", p.Name, "state", p.cmd.ProcessState.String(), "error", err)
}

// Failed tells of a child that ended on its own.
func (s *Set) Failed() <-chan error { return s.failed }

// Wait returns nil when ctx ends, or the error of the first child that ended on its own.
func (s *Set) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.failed:
		return err
	}
}

// Stop ends the children, the last started first.
func (s *Set) Stop() {
	s.mu.Lock()
	s.stopping = true
	running := s.running
	s.mu.Unlock()
	for i := len(running) - 1; i >= 0; i-- {
		p := running[i]
		p.farewell()
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		patience := p.Patience
		if patience == 0 {
			patience = 20 * time.Second
		}
		select {
		case <-p.done:
		case <-time.After(patience):
			s.log.Warn("A component did not end when told to and is killed", "component", p.Name)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
}

func (p *process) farewell() {
	select {
	case <-p.done:
	default:
		if p.Farewell != nil {
			p.Farewell()
		}
	}
}

func without(env []string, name string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}
