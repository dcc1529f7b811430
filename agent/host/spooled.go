package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// runSpooled runs a program at most once for its spool: below the agent, or by a shim in a unit of its own.
func (m Machine) runSpooled(ctx context.Context, command Command) (Result, error) {
	s := spool(command.Spool)
	if result, found, err := s.told(); found {
		result.Resumed = true
		return result, err
	}
	units := m.unitManager()
	_, err := os.Stat(s.path(spoolLock))
	begun := err == nil
	if !begun && (command.Unit == "" || units == nil) {
		return s.runBelow(ctx, command)
	}
	if err := s.make(); err != nil {
		return Result{ExitCode: -1}, err
	}
	lock, err := openLock(s.path(spoolLock))
	if err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("locking the spool: %w", err)
	}
	defer lock.Close()
	free, err := tryLock(lock)
	if err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("locking the spool: %w", err)
	}
	if !free {
		result, err := s.wait(ctx, command, units)
		result.Resumed = true
		return result, err
	}
	// Nobody runs it, and as long as the lock is ours nobody begins to.
	if result, found, err := s.told(); found {
		result.Resumed = true
		return result, err
	}
	if units == nil || command.Unit == "" {
		return s.runBelow(ctx, command)
	}
	if begun {
		// A shim that was killed may have left the program behind.
		units.clear(command.Unit)
	}
	return s.runInUnit(ctx, command, units, lock)
}

// runBelow runs the program as a child. Its result is noted for an agent that dies before it could use it.
func (s spool) runBelow(ctx context.Context, command Command) (Result, error) {
	if err := s.make(); err != nil {
		return Result{ExitCode: -1}, err
	}
	if err := s.clear(); err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("clearing the spool: %w", err)
	}
	result, err := runBelow(ctx, command, s.sinks(command.Progress))
	if err == nil {
		s.note(result)
	}
	return result, err
}

func (s spool) runInUnit(ctx context.Context, command Command, units unitManager, lock *os.File) (Result, error) {
	none := Result{ExitCode: -1}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	path, err := lookPath(command)
	if err != nil {
		return none, err
	}
	if err := s.clear(); err != nil {
		return none, fmt.Errorf("clearing the spool: %w", err)
	}
	if err := s.order(path, command); err != nil {
		return none, fmt.Errorf("writing the spool: %w", err)
	}
	self, err := ownBinary()
	if err != nil {
		return none, err
	}
	lock.Close() // for the shim
	err = units.start(ctx, command.Unit, []string{self, ShimCommand, string(s)})
	switch {
	case errors.Is(err, errNoUnits):
		return s.runWithoutUnit(ctx, command, units)
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrLeave):
		return none, ErrLeave
	case ctx.Err() != nil:
		return none, errors.Join(ctx.Err(), s.end(units, command.Unit))
	case err != nil:
		if result, found, err := s.told(); found {
			return result, err
		}
		return none, fmt.Errorf("starting %s.service: %w", command.Unit, err)
	}
	return s.wait(ctx, command, units)
}

// runWithoutUnit is for a service manager that refuses. Should a unit have come to life in spite of that, the lock decides who runs the
// program.
func (s spool) runWithoutUnit(ctx context.Context, command Command, units unitManager) (Result, error) {
	lock, err := openLock(s.path(spoolLock))
	if err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("locking the spool: %w", err)
	}
	defer lock.Close()
	free, err := tryLock(lock)
	if err != nil {
		return Result{ExitCode: -1}, fmt.Errorf("locking the spool: %w", err)
	}
	if !free {
		return s.wait(ctx, command, units)
	}
	return s.runBelow(ctx, command)
}

// wait waits until the shim gives the lock back, and tells what it wrote down.
func (s spool) wait(ctx context.Context, command Command, units unitManager) (Result, error) {
	none := Result{ExitCode: -1}
	if command.Progress != nil {
		defer s.follow(command.Progress)()
	}
	ended, err := s.ended()
	if err != nil {
		return none, err
	}
	select {
	case <-ended:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), ErrLeave) {
			return none, ErrLeave
		}
		err := s.end(units, command.Unit)
		if stopped, found := s.read(spoolStopped); found {
			none.Stdout, none.Stderr = stopped.Stdout, stopped.Stderr
		}
		if err == nil {
			return none, ctx.Err()
		}
		return none, errors.Join(ctx.Err(), err)
	}
	if result, found, err := s.told(); found {
		return result, err
	}
	return s.died(ctx, command, units)
}

// died tells why there is no result. When the machine goes down it is not a failure: the program is run again after the start.
func (s spool) died(ctx context.Context, command Command, units unitManager) (Result, error) {
	none := Result{ExitCode: -1}
	if units != nil && units.stopping() {
		<-ctx.Done() // the agent is told to stop too
		return none, ErrLeave
	}
	if units != nil {
		units.clear(command.Unit)
	}
	if stopped, found := s.read(spoolStopped); found {
		none.Stdout, none.Stderr = stopped.Stdout, stopped.Stderr
		return none, fmt.Errorf("%s.service was stopped from outside before the program had ended", command.Unit)
	}
	return none, fmt.Errorf("%s.service ended without a result: it was killed, or the machine ran out of memory", command.Unit)
}

// ended is closed when nobody holds the lock. Its goroutine stays when nobody waits any more.
func (s spool) ended() (<-chan struct{}, error) {
	lock, err := openLock(s.path(spoolLock))
	if err != nil {
		return nil, fmt.Errorf("waiting for the spool: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer lock.Close()
		for errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH), unix.EINTR) {
		}
		close(ended)
	}()
	return ended, nil
}

// end ends the shim, which ends the program and everything that it started, and then whatever the unit still holds.
func (s spool) end(units unitManager, unit string) error {
	ended, err := s.ended()
	if err != nil {
		return err
	}
	if shim := s.shim(); shim != nil {
		_ = shim.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(2*killGrace + time.Second):
		}
		_ = shim.Kill()
	}
	if units != nil {
		units.clear(unit)
	}
	select {
	case <-ended:
	case <-time.After(killGrace):
		return ErrStillRunning
	}
	if stopped, found := s.read(spoolStopped); found && stopped.Left {
		return ErrStillRunning
	}
	return nil
}

// shim is the process that holds the lock. Its handle is taken before the lock is looked at, so that it is not another process that
// got the number later.
func (s spool) shim() *os.Process {
	lock, err := openLock(s.path(spoolLock))
	if err != nil {
		return nil
	}
	defer lock.Close()
	pid := lockPID(lock)
	if pid == 0 || pid == os.Getpid() {
		return nil
	}
	process, err := os.FindProcess(pid)
	if err != nil || !errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return nil
	}
	return process
}

// follow tells how much output there is whenever the shim notes it, until the function that it gives is called.
func (s spool) follow(progress func(int64)) (stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return func() {}
	}
	if watcher.Add(s.path(spoolProgress)) != nil {
		watcher.Close()
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.Events {
			if !event.Has(fsnotify.Write) {
				continue
			}
			if raw, err := os.ReadFile(s.path(spoolProgress)); err == nil {
				if total, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
					progress(total)
				}
			}
		}
	}()
	return func() {
		watcher.Close()
		<-done
	}
}

// ownBinary is a path of the program that runs, also when an upgrade has put another one in its place.
func ownBinary() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if there, err := os.Stat(path); err == nil && os.SameFile(running, there) {
		return path, nil
	}
	return filepath.Join("/proc", strconv.Itoa(os.Getpid()), "exe"), nil
}
