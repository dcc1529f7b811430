// Package programs starts the programs of a scale run on this machine, and reads from /proc what they use. It knows nothing of what they
// do.
package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopsWithin is longer than any of the programs should take to stop.
const stopsWithin = 30 * time.Second

// Program is a program that runs.
type Program struct {
	// Name is for messages, Log the file with its output.
	Name, Log string

	cmd    *exec.Cmd
	ended  chan struct{}
	err    error
	killed bool
}

// Start starts a program whose output is added to <name>.log in a directory. It is killed with this process. env is added to this
// process's environment.
func Start(dir, name string, env []string, command string, args ...string) (*Program, error) {
	p := &Program{Name: name, Log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(command, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// PID is that of the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Stop asks the program to end, waits for it, and kills it if it does not. It does nothing after Kill.
func (p *Program) Stop() error {
	if p.killed {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s ended early (%w): see %s", p.Name, errors.Join(p.err, errors.New("it should run")), p.Log)
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopsWithin):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not stop within %s: see %s", p.Name, stopsWithin, p.Log)
}

// Kill ends the program at once, as a crash would, and waits until it has ended.
func (p *Program) Kill() {
	p.killed = true
	_ = p.cmd.Process.Kill() // fails for one that has ended
	<-p.ended
}

// Await asks again until check returns nil. It fails when the program or ctx ends.
func (p *Program) Await(ctx context.Context, what string, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w)", what, ctx.Err(), err)
		case <-p.ended:
			return fmt.Errorf("waiting for %s: %s ended (%w): see %s", what, p.Name, p.err, p.Log)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
