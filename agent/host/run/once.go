package run

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

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/systemd"
)

// runOnce runs a program at most once for its run directory: as a child, or by a shim in a unit. The lock file exists if a shim was ever
// started for this run, and whoever holds its lock runs the program.
//
//	result.json  lock file  locked  what happens
//	yes          -          -       return the result
//	no           no         -       run it: in a unit if there may be one, otherwise as a child
//	no           yes        yes     wait for the shim
//	no           yes        no      the shim was killed: kill what it left, run it again
//
// With ResumeOnly nothing is run: the second row and the last one return ErrNotRunning, the last one when what is left was killed.
func (e Exec) runOnce(ctx context.Context, command Command) (Result, error) {
	d := runDir(command.RunDir)
	if result, found, err := d.result(); found {
		result.Resumed = true
		return result, err
	}
	units := e.unitManager()
	_, err := os.Stat(d.path(lockFile))
	started := err == nil
	if !started && command.ResumeOnly {
		return noResult, ErrNotRunning
	}
	if !started && (command.Unit == "" || units == nil) {
		return d.runChild(ctx, command)
	}
	if err := d.create(); err != nil {
		return noResult, err
	}
	lock, locked, err := d.tryLock()
	if err != nil {
		return noResult, err
	}
	defer lock.Close()
	if !locked {
		result, err := d.wait(ctx, command, units)
		result.Resumed = true
		return result, err
	}
	// Nobody runs it, and nobody can start to while this process has the lock.
	if result, found, err := d.result(); found {
		result.Resumed = true
		return result, err
	}
	inUnit := units != nil && command.Unit != ""
	if started && inUnit {
		units.Remove(command.Unit)
	}
	switch {
	case command.ResumeOnly:
		return noResult, ErrNotRunning
	case !inUnit:
		return d.runChild(ctx, command)
	}
	return d.runInUnit(ctx, command, units, lock)
}

// runChild runs the program as a child. Its result is recorded for an agent that dies before it could use it.
func (d runDir) runChild(ctx context.Context, command Command) (Result, error) {
	if err := d.create(); err != nil {
		return noResult, err
	}
	if err := d.clear(); err != nil {
		return noResult, err
	}
	result, err := runChild(ctx, command, d.outputWriters(command.Progress))
	if err == nil {
		if result.ExitCode == 0 && !result.TimedOut {
			syncDisks(ctx.Done())
		}
		d.writeResult(result)
	}
	return result, err
}

func (d runDir) runInUnit(ctx context.Context, command Command, units unitManager, lock fs.LockFile) (Result, error) {
	if err := ctx.Err(); err != nil {
		return noResult, err
	}
	path, err := lookPath(command)
	if err != nil {
		return noResult, err
	}
	if err := d.clear(); err != nil {
		return noResult, err
	}
	if err := d.writeSpec(path, command); err != nil {
		return noResult, err
	}
	self, err := ownBinary()
	if err != nil {
		return noResult, err
	}
	lock.Close() // for the shim
	err = units.Start(ctx, command.Unit, []string{self, ShimCommand, string(d)})
	switch {
	case errors.Is(err, systemd.ErrUnavailable):
		return d.runWithoutUnit(ctx, command, units)
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrDetach):
		return noResult, ErrDetach
	case ctx.Err() != nil:
		unlocked, err := d.unlocked()
		if err == nil {
			err = d.terminate(unlocked, units, command.Unit)
		}
		return noResult, errors.Join(ctx.Err(), err)
	case err != nil:
		return d.afterFailedStart(ctx, command, units, err)
	}
	return d.wait(ctx, command, units)
}

// afterFailedStart is for a unit of which it is not known whether it has started, or will: the connection to the service manager may have
// been lost, or the job may be queued. If the shim has the lock, it runs the program. Otherwise it must not run it later, when the caller
// has started another one.
func (d runDir) afterFailedStart(ctx context.Context, command Command, units unitManager, failed error) (Result, error) {
	failed = fmt.Errorf("starting %s.service: %w", command.Unit, failed)
	lock, locked, err := d.tryLock()
	if err != nil {
		return noResult, errors.Join(failed, err)
	}
	defer lock.Close()
	if !locked {
		return d.wait(ctx, command, units)
	}
	if result, found, err := d.result(); found {
		return result, err
	}
	units.Remove(command.Unit)
	// Without its spec the shim ends, also if the service manager could not be reached to remove the unit.
	if err := os.Remove(d.path(specFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return noResult, errors.Join(failed, err)
	}
	return noResult, failed
}

// runWithoutUnit is for a service manager that refused the unit. If the unit started in spite of that, the lock decides who runs the
// program.
func (d runDir) runWithoutUnit(ctx context.Context, command Command, units unitManager) (Result, error) {
	lock, locked, err := d.tryLock()
	if err != nil {
		return noResult, err
	}
	defer lock.Close()
	if !locked {
		return d.wait(ctx, command, units)
	}
	return d.runChild(ctx, command)
}

// wait waits until the shim releases the lock, and returns the result that it recorded.
func (d runDir) wait(ctx context.Context, command Command, units unitManager) (Result, error) {
	if command.Progress != nil {
		defer d.watchProgress(command.Progress)()
	}
	unlocked, err := d.unlocked()
	if err != nil {
		return noResult, err
	}
	select {
	case <-unlocked:
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), ErrDetach) {
			return noResult, ErrDetach
		}
		err := d.terminate(unlocked, units, command.Unit)
		result, _ := d.stoppedResult()
		if err == nil {
			return result, ctx.Err()
		}
		return result, errors.Join(ctx.Err(), err)
	}
	if result, found, err := d.result(); found {
		return result, err
	}
	return d.withoutResult(ctx, command, units)
}

// stoppedResult has the output of a program that was terminated from outside, if the shim recorded it.
func (d runDir) stoppedResult() (result Result, found bool) {
	stopped, found := d.readResult(stoppedFile)
	return Result{ExitCode: -1, Stdout: stopped.Stdout, Stderr: stopped.Stderr}, found
}

// withoutResult explains why the shim ended without a result. A shutdown of the machine is no failure: the program runs again after the
// reboot.
func (d runDir) withoutResult(ctx context.Context, command Command, units unitManager) (Result, error) {
	if units != nil && units.ShuttingDown() {
		<-ctx.Done() // the agent is stopped, too
		return noResult, ErrDetach
	}
	if units != nil {
		units.Remove(command.Unit)
	}
	result, stopped := d.stoppedResult()
	if stopped {
		return result, fmt.Errorf("%s.service was stopped from outside before the program had ended", command.Unit)
	}
	return noResult, fmt.Errorf("%s.service ended without a result: it was killed, or the machine ran out of memory", command.Unit)
}

// unlocked is closed once nobody holds the lock, not even whoever waited for it here: the program may run again at once. Its goroutine
// remains after the caller has stopped waiting.
func (d runDir) unlocked() (<-chan struct{}, error) {
	lock, err := fs.OpenLock(d.path(lockFile))
	if err != nil {
		return nil, fmt.Errorf("waiting for run directory: %w", err)
	}
	unlocked := make(chan struct{})
	go func() {
		for errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH), unix.EINTR) {
		}
		lock.Close()
		close(unlocked)
	}()
	return unlocked, nil
}

// terminate ends the shim, which terminates the program and everything that it started, and then whatever is left in the unit.
func (d runDir) terminate(unlocked <-chan struct{}, units unitManager, unit string) error {
	if shim := d.shim(); shim != nil {
		_ = shim.Signal(syscall.SIGTERM)
		select {
		case <-unlocked:
		case <-time.After(2*killGrace + time.Second):
		}
		_ = shim.Kill()
	}
	if units != nil {
		units.Remove(unit)
	}
	select {
	case <-unlocked:
	case <-time.After(killGrace):
		return ErrStillRunning
	}
	if stopped, found := d.readResult(stoppedFile); found && stopped.Left {
		return ErrStillRunning
	}
	return nil
}

// shim is the process that holds the lock, or nil. Its handle (a pidfd) is opened before the lock is checked, so that it is not a later
// process with the same pid.
func (d runDir) shim() *os.Process {
	lock, err := fs.OpenLock(d.path(lockFile))
	if err != nil {
		return nil
	}
	defer lock.Close()
	pid := lock.PID()
	if pid == 0 || pid == os.Getpid() {
		return nil
	}
	process, err := os.FindProcess(pid)
	if err != nil || !errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK) {
		return nil
	}
	return process
}

// watchProgress calls progress whenever the number in the progress file has changed, and a last time when stop is called. If the kernel has
// no watch left, there is only the last call.
func (d runDir) watchProgress(progress func(int64)) (stop func()) {
	last := int64(0)
	read := func() {
		raw, _ := os.ReadFile(d.path(progressFile))
		if total, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && total != last {
			last = total
			progress(total)
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return read
	}
	_ = watcher.Add(d.path(progressFile))
	done := make(chan struct{})
	go func() {
		defer close(done)
		read()
		for range watcher.Events {
			read()
		}
	}()
	return func() {
		watcher.Close()
		<-done
		read()
	}
}

// ownBinary is a path of the running program, also after an upgrade has put another one in its place, so that shim and spec are of the same
// version.
func ownBinary() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if installed, err := os.Stat(path); err == nil && os.SameFile(running, installed) {
		return path, nil
	}
	return filepath.Join("/proc", strconv.Itoa(os.Getpid()), "exe"), nil
}
