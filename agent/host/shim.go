package host

import (
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
)

// ShimCommand is the command of the agent's binary that does RunInstruction.
const ShimCommand = "run-instruction"

// resultRoom is kept free for the result while the program runs: enough for both outputs, so that it is told on a full disk too.
const resultRoom = 448 << 10

// RunInstruction is the shim between the service manager and one program: it runs what the spool says, drains its output into the spool's
// logs, keeps its timeout, and writes down how it ended, whether or not an agent is there to see it. It returns an error when there is no
// result.
func RunInstruction(dir string) error {
	s := spool(dir)
	if err := s.check(); err != nil {
		return err
	}
	lock, err := openLock(s.path(spoolLock))
	if err != nil {
		return err
	}
	defer lock.Close()
	switch held, err := tryLock(lock); {
	case err != nil:
		return err
	case !held:
		return fmt.Errorf("the spool %s is taken%s", dir, holder(lock))
	}
	if _, found := s.read(spoolResult); found {
		return nil
	}
	order, err := s.take()
	if err != nil {
		return err
	}
	shim := newShim(s)
	defer shim.close()
	Machine{}.Notify("READY=1")
	ended := shim.run(order)
	name := spoolResult
	if shim.stopped {
		name = spoolStopped
	}
	if err := shim.finish(name, ended); err != nil {
		return err
	}
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	shim.linger()
	return nil
}

type shim struct {
	spool    spool
	children chan os.Signal // a child has ended
	stop     chan os.Signal // somebody wants this to end
	streams  *streams
	sinks    *sinks
	progress *os.File
	reserved *os.File

	main    int
	ended   bool // the program has
	alone   bool // no child is left, and so no descendant
	status  syscall.WaitStatus
	stopped bool
}

func newShim(s spool) *shim {
	shim := &shim{spool: s, children: make(chan os.Signal, 1), stop: make(chan os.Signal, 1)}
	signal.Notify(shim.children, syscall.SIGCHLD)
	signal.Notify(shim.stop, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	// Whoever loses its parent becomes a child of the shim, so that nothing the program starts gets out of sight.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	var err error
	if shim.reserved, err = os.OpenFile(s.path("."+spoolResult), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
		_ = unix.Fallocate(int(shim.reserved.Fd()), 0, 0, resultRoom)
	}
	shim.progress, _ = os.OpenFile(s.path(spoolProgress), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	shim.sinks = s.sinks(shim.note)
	return shim
}

func (s *shim) close() {
	for _, file := range []*os.File{s.progress, s.reserved} {
		if file != nil {
			file.Close()
		}
	}
}

// note writes down how much output there is; the number only grows, so it needs no truncating.
func (s *shim) note(total int64) {
	if s.progress != nil {
		_, _ = s.progress.WriteAt([]byte(strconv.FormatInt(total, 10)+"\n"), 0)
	}
}

// run runs the program until it has ended, or until everything has been made to end.
func (s *shim) run(order spec) record {
	ended := record{ExitCode: -1}
	cmd, streams, err := start(order.Path, order.command(), s.sinks)
	if err != nil {
		ended.Error, ended.Ended = err.Error(), time.Now()
		return ended
	}
	s.streams, s.main = streams, cmd.Process.Pid
	_ = cmd.Process.Release() // it is waited for together with all others
	// When memory runs out, the program goes before the one who tells of it.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	var timeout <-chan time.Time
	if order.Timeout > 0 {
		timeout = time.After(order.Timeout)
	}
	for s.reap(); !s.ended; s.reap() {
		select {
		case <-s.children:
			continue
		case <-timeout:
			ended.TimedOut = true
		case <-s.stop:
			s.stopped = true
		}
		ended.Left = s.end()
		break
	}
	streams.drain(drainGrace)
	if s.ended && s.status.Exited() {
		ended.ExitCode = s.status.ExitStatus()
	}
	ended.Stdout, ended.Stderr = s.sinks.close()
	ended.Ended = time.Now()
	return ended
}

// reap waits for every child that has ended.
func (s *shim) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD):
			s.alone = true
			return
		case err != nil || pid <= 0:
			s.alone = false
			return
		case pid == s.main:
			s.ended, s.status = true, status
		}
	}
}

// end ends every descendant, and tells whether one would not go.
func (s *shim) end() (left bool) {
	s.signal(syscall.SIGTERM)
	grace := time.NewTimer(killGrace)
	defer grace.Stop()
	killing := false
	for s.reap(); !s.alone; s.reap() {
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

// finish makes the record durable. On a full disk it goes without the output, which the logs have as far as they could.
func (s *shim) finish(name string, ended record) error {
	if s.reserved == nil {
		return errors.New("there was no room for a result")
	}
	raw, err := json.Marshal(ended)
	if err == nil {
		_, err = s.reserved.WriteAt(raw, 0)
	}
	if err != nil {
		ended.Stdout, ended.Stderr = nil, nil
		if raw, err = json.Marshal(ended); err != nil {
			return err
		}
		if _, err := s.reserved.WriteAt(raw, 0); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	if err := s.reserved.Truncate(int64(len(raw))); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if err := s.reserved.Sync(); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if err := os.Rename(s.reserved.Name(), s.spool.path(name)); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	// The folder itself may be new, and the one that it is in.
	for dir, level := string(s.spool), 0; level < 3; dir, level = filepath.Dir(dir), level+1 {
		if err := syncDir(dir); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return nil
}

// linger stays for as long as a daemon that the program left behind holds its output.
func (s *shim) linger() {
	if s.streams == nil || s.stopped {
		return
	}
	drained := s.streams.drained()
	for {
		select {
		case <-drained:
			return
		case <-s.children:
			s.reap()
		case <-s.stop:
			s.end()
			return
		}
	}
}
