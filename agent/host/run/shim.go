package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/host/systemd"
)

// ShimCommand is the subcommand of the agent's binary that calls Shim with its only argument.
const ShimCommand = "run-instruction"

// reservedBytes are allocated for the result before the program starts: enough for both outputs, so that it can be recorded on a full disk.
const reservedBytes = 448 << 10

// Shim runs the program of a run directory, between the service manager and the program, as containerd-shim does for containers: it reads
// the spec, copies output to the log files, enforces the timeout, and records the result, whether or not an agent is there to see it. It
// returns when nobody holds the program's output any more. An error means that there is no result. Without room for the result, the program
// is not started.
func Shim(dir string) error {
	d := runDir(dir)
	if err := d.check(); err != nil {
		return err
	}
	lock, locked, err := d.tryLock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if !locked {
		return fmt.Errorf("run directory %s is locked by another process%s", dir, lock.HolderHint())
	}
	if _, found := d.readResult(resultFile); found {
		return nil
	}
	spec, err := d.readSpec()
	if err != nil {
		return err
	}
	s, err := newShim(d)
	if err != nil {
		return err
	}
	defer s.close()
	systemd.Notify("READY=1")
	result := s.run(spec)
	name := resultFile
	switch {
	case s.stopped:
		name = stoppedFile // it runs again
	case result.ExitCode == 0 && !result.TimedOut:
		syncDisks(s.stop)
	}
	if err := s.writeResult(name, result); err != nil {
		return err
	}
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	s.drainDaemons()
	return nil
}

type shim struct {
	dir      runDir
	children chan os.Signal // SIGCHLD
	// stop is closed by SIGTERM and SIGINT, until release is called.
	stop    <-chan struct{}
	release context.CancelFunc
	pipes   *outputPipes
	writers *outputWriters
	// progress is the progress file, nil if it could not be created. result is the file that becomes result.json or stopped.json.
	progress *os.File
	result   *os.File

	// pid is the program; exited and status tell how it ended.
	pid    int
	exited bool
	status syscall.WaitStatus
	// childless is set if no child is left, and hence no descendant.
	childless bool
	// stopped is set if the program was terminated because of a signal to the shim.
	stopped bool
}

func newShim(d runDir) (*shim, error) {
	result, err := d.reserveResult()
	if err != nil {
		return nil, err
	}
	stop, release := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	s := &shim{dir: d, result: result, children: make(chan os.Signal, 1), stop: stop.Done(), release: release}
	signal.Notify(s.children, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	// Orphans become children of the shim, so that nothing that the program starts escapes it.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	s.progress, _ = os.OpenFile(d.path(progressFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	s.writers = d.outputWriters(s.writeProgress)
	return s, nil
}

// reserveResult creates the file of the result with room for it. A program whose result could not be recorded would run twice. Not every
// file system can reserve space.
func (d runDir) reserveResult() (*os.File, error) {
	file, err := os.OpenFile(d.path("."+resultFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating the file of the result: %w", err)
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fallocate(int(file.Fd()), 0, 0, reservedBytes)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		_ = os.Remove(file.Name())
		file.Close()
		return nil, fmt.Errorf("reserving %d KiB for the result: %w", reservedBytes>>10, err)
	}
	return file, nil
}

func (s *shim) close() {
	s.progress.Close() // nil is fine
	s.result.Close()
	s.release()
}

// writeProgress overwrites the number of bytes. It only grows, so nothing needs to be truncated.
func (s *shim) writeProgress(total int64) {
	if s.progress != nil {
		_, _ = s.progress.WriteAt([]byte(strconv.FormatInt(total, 10)+"\n"), 0)
	}
}

// run runs the program until it has ended, or until everything has been terminated because of the timeout or a signal.
func (s *shim) run(spec runSpec) runResult {
	result := runResult{ExitCode: -1}
	cmd, pipes, err := start(spec.Path, spec.command(), s.writers)
	if err != nil {
		result.Error, result.Ended = err.Error(), time.Now()
		return result
	}
	s.pipes, s.pid = pipes, cmd.Process.Pid
	_ = cmd.Process.Release() // it is reaped together with all others
	// When memory runs out, the kernel shall kill the program before the shim that reports it.
	_ = os.WriteFile(oomScoreFile, []byte("-900"), 0)
	var timeout <-chan time.Time
	if spec.Timeout > 0 {
		timeout = time.After(spec.Timeout)
	}
	for s.reap(); !s.exited; s.reap() {
		select {
		case <-s.children:
			continue
		case <-timeout:
			result.TimedOut = true
		case <-s.stop:
			s.stopped = true
		}
		result.Left = s.terminate()
		break
	}
	pipes.drain(drainGrace)
	if s.exited && s.status.Exited() {
		result.ExitCode = s.status.ExitStatus()
	}
	result.Stdout, result.Stderr = s.writers.close()
	result.Ended = time.Now()
	return result
}

// reap waits for every child that has ended.
func (s *shim) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			s.childless = true
			return
		case err != nil || pid <= 0:
			s.childless = false
			return
		case pid == s.pid:
			s.exited, s.status = true, status
		}
	}
}

// terminate ends every descendant, and reports whether any survived SIGKILL.
func (s *shim) terminate() (left bool) {
	s.signal(syscall.SIGTERM)
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	killing := false
	for s.reap(); !s.childless; s.reap() {
		if killing {
			s.signal(syscall.SIGKILL)
		}
		select {
		case <-s.children:
		case <-grace.C:
			if killing {
				return true
			}
			killing = true
			grace.Reset(killGrace)
		}
	}
	return false
}

func (s *shim) signal(signal syscall.Signal) {
	for _, process := range descendants(os.Getpid()) {
		_ = syscall.Kill(process.pid, signal)
		_ = syscall.Kill(process.pid, syscall.SIGCONT)
	}
}

// writeResult records the result durably. On a full disk it is recorded without the output, of which the log files have what fitted.
func (s *shim) writeResult(name string, result runResult) error {
	if err := s.tryWriteResult(name, result); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func (s *shim) tryWriteResult(name string, result runResult) error {
	raw, err := json.Marshal(result)
	if err == nil {
		_, err = s.result.WriteAt(raw, 0)
	}
	if err != nil {
		result.Stdout, result.Stderr = nil, nil
		if raw, err = json.Marshal(result); err != nil {
			return err
		}
		if _, err := s.result.WriteAt(raw, 0); err != nil {
			return err
		}
	}
	if err := s.result.Truncate(int64(len(raw))); err != nil {
		return err
	}
	if err := s.result.Sync(); err != nil {
		return err
	}
	if err := os.Rename(s.result.Name(), s.dir.path(name)); err != nil {
		return err
	}
	// The run directory itself may be new, and its parent.
	for dir, level := string(s.dir), 0; level < 3; dir, level = filepath.Dir(dir), level+1 {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// drainDaemons keeps reading while a daemon that the program left behind holds its output, so that the daemon is not killed by SIGPIPE.
func (s *shim) drainDaemons() {
	if s.pipes == nil || s.stopped {
		return
	}
	closed := s.pipes.closed()
	for {
		select {
		case <-closed:
			return
		case <-s.children:
			s.reap()
		case <-s.stop:
			s.terminate()
			return
		}
	}
}
